/* What libpq calls of GSSAPI (Kerberos) and LDAP, for a binary that holds neither: Debian has no archives of them to
 * link, and their shared libraries would be all that the binary needs besides the C library.
 *
 * libpq asks for Kerberos credentials before each connection, finds none, and goes on with passwords, SCRAM or client
 * certificates. Two things fail, each with a message that says why: a server that insists on GSSAPI, and a service file
 * (pg_service.conf) that is to be looked up in LDAP. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* As in <gssapi/gssapi.h>. */
struct gss_buffer {
  size_t length;
  void* value;
};
enum { kComplete = 0, kUnavailable = 16 << 16 }; /* GSS_S_COMPLETE, GSS_S_UNAVAILABLE */

void* GSS_C_NT_HOSTBASED_SERVICE = NULL;

uint32_t gss_acquire_cred(void) { return kUnavailable; }
uint32_t gss_import_name(void) { return kUnavailable; }
uint32_t gss_init_sec_context(void) { return kUnavailable; }
uint32_t gss_wrap(void) { return kUnavailable; }
uint32_t gss_unwrap(void) { return kUnavailable; }
uint32_t gss_wrap_size_limit(void) { return kUnavailable; }

/* Nothing was made that could be released. */
uint32_t gss_delete_sec_context(void) { return kComplete; }
uint32_t gss_release_buffer(void) { return kComplete; }
uint32_t gss_release_cred(void) { return kComplete; }
uint32_t gss_release_name(void) { return kComplete; }

uint32_t gss_display_status(uint32_t* minor, uint32_t status, int type, void* mechanism, uint32_t* more,
                            struct gss_buffer* text) {
  /* libpq asks for the text of the status and for that of the mechanism, and puts a colon between them. */
  enum { kMechanismText = 2 }; /* GSS_C_MECH_CODE */
  static char cause[] = "this binary is built without GSSAPI (Kerberos)";
  static char advice[] = "use another authentication method, or build Oncekey from source";
  char* const message = type == kMechanismText ? advice : cause;
  (void)status, (void)mechanism;
  *minor = 0;
  *more = 0;
  text->value = message;
  text->length = strlen(message);
  return kComplete;
}

/* libpq: "could not create LDAP structure". It calls none of the others then. */
void* ldap_init(void) { return NULL; }

int ldap_set_option(void) { return -1; }
int ldap_simple_bind(void) { return -1; }
int ldap_result(void) { return -1; }
int ldap_search_st(void) { return -1; }
int ldap_count_entries(void) { return -1; }
void* ldap_first_entry(void) { return NULL; }
void* ldap_get_values_len(void) { return NULL; }
void ldap_value_free_len(void) {}
int ldap_msgfree(void) { return -1; }
int ldap_unbind(void) { return -1; }
char* ldap_err2string(void) {
  static char message[] = "this binary is built without LDAP";
  return message;
}
