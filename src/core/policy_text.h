// policy_text: the settings of a policy as people write them.
//
// Configuration files, flags, the published policies and the logs all spell a setting the way it is spelled here. A
// fault of a parse function is a sentence that says what is allowed; the caller puts file and line in front of it.
#pragma once

#include "core/policy.h"

#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

std::string_view to_string(KeySyntax syntax);     // visible-ascii, structured-string, raw
std::string_view to_string(Identity identity);    // key, operation-key
std::string_view to_string(FingerprintMode mode); // bytes, canonical
std::string_view to_string(MissingKey rule);      // pass, required
std::string_view to_string(OnUnknown rule);       // hold, abandon
std::string_view to_string(OnAbandoned rule);     // hold, reexecute, probe
std::string_view to_string(OnStoreError rule);    // refuse, bypass
std::string_view to_string(Mode mode);            // enforce, observe
std::string_view to_string(PathCase path_case);   // exact, ignore
std::string_view to_string(ErrorFormat format);   // problem, problem-link, stripe
std::string to_string(const ScopeSource& source);
std::string to_string(const KeySource& source);
std::string to_string(const Probe& probe);
std::string to_string(const Reauthorization& question);

Result<KeySyntax> parse_key_syntax(std::string_view text);
Result<Identity> parse_identity(std::string_view text);
Result<FingerprintMode> parse_fingerprint_mode(std::string_view text);
Result<MissingKey> parse_missing_key(std::string_view text);
Result<OnUnknown> parse_on_unknown(std::string_view text);
Result<OnAbandoned> parse_on_abandoned(std::string_view text);
Result<OnStoreError> parse_on_store_error(std::string_view text);
Result<Mode> parse_mode(std::string_view text);
Result<PathCase> parse_path_case(std::string_view text);
Result<ErrorFormat> parse_error_format(std::string_view text);

// "header:NAME", "jwt:CLAIM", "cookie:NAME", "client-cert", "host", each with a `?` behind it when optional, or
// "global".
Result<ScopeSource> parse_scope_source(std::string_view text);
// "header:NAME", "body:/json/pointer", "form:FIELD" or "fingerprint".
Result<KeySource> parse_key_source(std::string_view text);
// "GET /v1/charges?key={key}": GET or HEAD, one space, a target that holds {key}.
Result<Probe> parse_probe(std::string_view text);
// "GET /v1/me": GET or HEAD, one space, a target.
Result<Reauthorization> parse_reauthorization(std::string_view text);
// An entry of fingerprint_ignore: an RFC 6901 pointer to something inside the document.
Status check_json_pointer(std::string_view text);

} // namespace oncekey
