// Policy: the rules a route follows, as data.
//
// Four named policies exist (docs/POLICIES.md has the table and the reasons); a route starts from one of them and may
// override any field. Nothing in the code asks for a policy's name to decide something: behaviour is in the fields.
#pragma once

#include "core/rate_keeper.h"

#include <oncekey/key_rules.h>
#include <oncekey/time.h>

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// Which HTTP statuses, 100 to 599, are kept and replayed.
class StatusSet {
 public:
  void insert(int first, int last);
  void erase(int status);
  bool contains(int status) const;
  // "200-399,404" and the like; ranges and single statuses, comma-separated, `!` in front takes away.
  static std::optional<StatusSet> parse(std::string_view text);
  std::string to_string() const;
  friend bool operator==(const StatusSet&, const StatusSet&) = default;

 private:
  std::bitset<600> bits_;
};

enum class MissingKey { pass, required };
enum class OnUnknown { hold, abandon };
enum class OnAbandoned { hold, reexecute, probe };
enum class OnStoreError { refuse, bypass };
enum class Mode { enforce, observe };
// What the audit log says of a route beside what operators do.
enum class AuditScope { actions, decisions };

// Where a part of the principal comes from.
struct ScopeSource {
  enum class Kind { header, jwt, cookie, client_cert, host, global };
  Kind kind = Kind::header;
  std::string name; // of the header, the claim or the cookie
  bool optional = false;
  friend bool operator==(const ScopeSource&, const ScopeSource&) = default;
};

// Where the key comes from; the sources of a route are tried in order.
struct KeySource {
  enum class Kind { header, body, form, fingerprint };
  Kind kind = Kind::header;
  std::string name; // header name, JSON pointer or form field
  friend bool operator==(const KeySource&, const KeySource&) = default;
};

// What the upstream is asked, with GET or HEAD: for the outcome of a key (then {key} in the target is replaced by the
// percent-encoded key), or whether a caller's credentials still hold.
struct Question {
  std::string method;
  std::string target;
  friend bool operator==(const Question&, const Question&) = default;
};

// How the bearer token behind a `jwt:` scope is verified.
struct TokenRules {
  std::string keys;                   // the JWKS: "file:PATH", "https://..." or "http://..."
  std::vector<std::string> audiences; // `aud` must name one of them; not looked at when empty
  std::vector<std::string> issuers;   // `iss` must be one of them; not looked at when empty
  bool unverified = false;            // the claim is believed as it stands; excludes `keys`
  friend bool operator==(const TokenRules&, const TokenRules&) = default;
};

struct Policy {
  std::string name;
  std::vector<std::string> methods;
  KeySyntax key_syntax = KeySyntax::visible_ascii;
  bool strict = false;
  Identity identity = Identity::operation_key;
  FingerprintMode fingerprint = FingerprintMode::bytes;
  std::vector<std::string> fingerprint_ignore;  // JSON pointers; needs `canonical`
  std::vector<std::string> fingerprint_headers; // names of request headers that count
  bool ignore_host = false;                     // one API under several names: the host is not part of the fingerprint
  PathCase path_case = PathCase::exact;
  bool allow_encoded_slash = false; // %2F is no slash to the API; else a path with it is refused
  MissingKey key = MissingKey::pass;
  int mismatch_status = 422;
  int in_progress_status = 409;
  StatusSet kept;
  bool heed_should_retry = false; // an answer that says `Stripe-Should-Retry: true` is not kept, whatever its status
  Millis retention = std::chrono::hours(24);
  OnUnknown on_unknown = OnUnknown::abandon;
  OnAbandoned on_abandoned = OnAbandoned::reexecute;
  ErrorFormat errors = ErrorFormat::problem;

  std::vector<ScopeSource> scope;
  TokenRules tokens;
  std::string accounts;                // path of the file that maps credentials to accounts; empty for none
  std::optional<Question> reauthorize; // asked before a replay
  Millis reauthorize_for{0};           // how long a yes of the upstream is remembered
  std::vector<KeySource> key_from;
  Millis window{0}; // for KeySource::Kind::fingerprint: how long requests alike are one

  // Long enough for nearly every call, short enough that a crash does not block a customer for long.
  Millis lease = std::chrono::seconds(60);
  // The whole call to the upstream, from the first byte sent to the last received.
  Millis upstream_timeout = std::chrono::seconds(60);
  Millis wait{0};                  // how long a request found in progress waits for the answer before it is refused
  std::uint32_t max_waiters = 100; // per key; the rest are refused at once

  std::uint64_t max_request_body = 8u << 20;
  std::uint64_t max_stored_body = 8u << 20;

  std::optional<Question> probe;
  Mode mode = Mode::enforce;
  OnStoreError on_store_error = OnStoreError::refuse;
  bool replay_set_cookie = false;
  // An answer whose end is the end of its connection may have been cut short: take it for an unknown outcome.
  bool require_framed_answers = false;

  // What one account may have of this route; where nothing is said, the gateway's limits count.
  RateLimits rates;
  bool rate_exempts_replays = false; // answer replays also beyond the limits, and do not count them
  bool respond_async = false;        // honour `Prefer: respond-async`
  bool redact = false;               // keep and show keyed hashes in place of keys and paths
  AuditScope audit = AuditScope::actions;
  bool compress = false; // gzip kept answers of text types for clients that accept it
};

// Does a part of the principal come from there?
bool has_scope(const Policy& policy, ScopeSource::Kind kind);
// Is KeySource::Kind::fingerprint among the sources of the key?
bool uses_fingerprint_as_key(const Policy& policy);

// A named policy, one of policy_names(). Nothing for any other name.
std::optional<Policy> policy_by_name(std::string_view name);
const std::vector<std::string>& policy_names();

} // namespace oncekey
