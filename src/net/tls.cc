#include "net/tls.h"

#include "base/certificate.h"

#include <fmt/format.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

namespace oncekey {
namespace {

class StreamCategory final : public std::error_category {
 public:
  StreamCategory(const char* called, std::string (*text)(int)) : name_(called), message_(text) {}
  const char* name() const noexcept override { return name_; }
  std::string message(int value) const override { return message_(value); }

 private:
  const char* name_;
  std::string (*message_)(int);
};

const StreamCategory kStreamCategory("stream", [](int value) -> std::string {
  return static_cast<StreamError>(value) == StreamError::ended ? "the peer closed the connection"
                                                               : "the connection broke off without a TLS goodbye";
});
const StreamCategory kOpensslCategory("openssl", [](int value) -> std::string {
  const char* const reason = ERR_reason_error_string(static_cast<unsigned long>(value));
  return reason != nullptr ? reason : "TLS failed";
});
const StreamCategory kCertificateCategory("certificate", [](int value) -> std::string {
  if (value == X509_V_ERR_HOSTNAME_MISMATCH || value == X509_V_ERR_IP_ADDRESS_MISMATCH)
    return "its certificate is for another name";
  return std::string("its certificate is not trusted: ") + X509_verify_cert_error_string(value);
});

constexpr const char* kTls12Ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20";

Result<TlsContext> new_context(const SSL_METHOD* method) {
  TlsContext context(SSL_CTX_new(method), SSL_CTX_free);
  if (!context) return unavailable(fmt::format("no TLS context: {}", take_openssl_error().message()));
  SSL_CTX_set_options(context.get(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_read_ahead(context.get(), 1); // one system call for as much as there is
  // Calls with the macros around SSL_CTX_ctrl cast in a way we do not compile.
  SSL_CTX_ctrl(context.get(), SSL_CTRL_MODE,
               SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS, nullptr);
  if (SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr) != 1)
    return invalid("this OpenSSL has no TLS 1.2");
  return context;
}

Status show_certificate(SSL_CTX* context, const std::string& cert_file, const std::string& key_file,
                        std::string_view prefix) {
  const std::optional<PemFinding> refused = use_key_pair(*context, cert_file, key_file);
  if (!refused) return ok_status();
  const bool of_key = refused->in == PemFinding::In::key;
  return invalid(fmt::format("{}{} {}", prefix, of_key ? "tls_key" : "tls_cert", refused->text));
}

Status ask_for_certificates(SSL_CTX* context, const std::string& client_ca, std::string_view prefix) {
  const bool loaded = SSL_CTX_load_verify_locations(context, client_ca.c_str(), nullptr) == 1;
  STACK_OF(X509_NAME)* const names = loaded ? SSL_load_client_CA_file(client_ca.c_str()) : nullptr;
  if (names == nullptr)
    return invalid(fmt::format("{}client_ca {}: {}; give a PEM file of the authorities that issue client certificates",
                               prefix, client_ca, loaded ? "it holds no certificate" : take_openssl_error().message()));
  SSL_CTX_set_client_CA_list(context, names);
  // Asked for, and verified if there is one: whether a request needs one is for its route to say.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  // A resumed session counts as verified, so that it must be one of this listener.
  static constexpr unsigned char kSessions[] = "oncekey";
  SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  return ok_status();
}

} // namespace

std::error_code make_error_code(StreamError error) { return {static_cast<int>(error), kStreamCategory}; }

std::error_code take_openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (ERR_SYSTEM_ERROR(code)) return {ERR_GET_REASON(code), std::system_category()};
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return StreamError::cut_off;
  return {static_cast<int>(code), kOpensslCategory};
}

std::error_code take_handshake_error(const SSL* session) {
  const std::error_code error = take_openssl_error();
  const long verified = SSL_get_verify_result(session);
  const bool refused = error.category() == kOpensslCategory &&
                       ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_CERTIFICATE_VERIFY_FAILED;
  if (!refused || verified == X509_V_OK) return error;
  return {static_cast<int>(verified), kCertificateCategory};
}

bool is_distrust(const std::error_code& error) { return error.category() == kCertificateCategory; }

bool is_no_tls(const std::error_code& error) {
  return error.category() == kOpensslCategory &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_WRONG_VERSION_NUMBER;
}

bool is_plain_http(const std::error_code& error) {
  if (error.category() != kOpensslCategory) return false;
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  return reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST;
}

bool is_own_shortage(const std::error_code& error) {
  return error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system ||
         error == std::errc::not_enough_memory || error == std::errc::no_buffer_space;
}

Result<TlsContext> server_tls(const std::string& cert_file, const std::string& key_file, std::string_view prefix,
                              const std::string& client_ca) {
  Result<TlsContext> context = new_context(TLS_server_method());
  if (!context) return context;
  SSL_CTX_set_options(context->get(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  if (SSL_CTX_set_cipher_list(context->get(), kTls12Ciphers) != 1)
    return invalid("this OpenSSL has no TLS 1.2 with forward secrecy");
  if (const Status shown = show_certificate(context->get(), cert_file, key_file, prefix); !shown) return shown.fault();
  if (!client_ca.empty()) {
    if (const Status asked = ask_for_certificates(context->get(), client_ca, prefix); !asked) return asked.fault();
  }
  return context;
}

Result<TlsContext> client_tls(const ClientTlsFiles& files) {
  Result<TlsContext> context = new_context(TLS_client_method());
  if (!context) return context;
  SSL_CTX_set_verify(context->get(), SSL_VERIFY_PEER, nullptr);
  const bool loaded = files.ca_file.empty()
                          ? SSL_CTX_set_default_verify_paths(context->get()) == 1
                          : SSL_CTX_load_verify_locations(context->get(), files.ca_file.c_str(), nullptr) == 1;
  if (!loaded)
    return invalid(fmt::format("{} {}: {}; give a PEM file of certificates to trust", files.ca_setting, files.ca_file,
                               take_openssl_error().message()));
  if (!files.cert_file.empty()) {
    const Status shown = show_certificate(context->get(), files.cert_file, files.key_file, {});
    if (!shown) return shown.fault();
  }
  return context;
}

} // namespace oncekey
