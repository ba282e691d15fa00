// policy_text: the settings of a policy as people write them.
//
// Configuration files, flags, the published policies and the logs all spell a setting the way it is spelled here. A
// fault of a parse function is a sentence that says what is allowed; the caller puts file and line in front of it.
#pragma once

#include "base/enum_name.h"
#include "base/faults.h"
#include "core/policy.h"

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

template <class T, class... Each>
concept OneOf = (std::same_as<T, Each> || ...);
// Settings that are one of several words. A word is the enumerator with dashes: KeySyntax::visible_ascii is
// "visible-ascii".
template <class T>
concept PolicyWord = OneOf<T, KeySyntax, Identity, FingerprintMode, MissingKey, OnUnknown, OnAbandoned, OnStoreError,
                           Mode, AuditScope, PathCase, ErrorFormat>;

template <PolicyWord Word>
std::string to_string(Word word) {
  std::string text(enum_name(word));
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

template <PolicyWord Word>
Result<Word> parse_word(std::string_view text) {
  std::optional<Word> found;
  std::vector<std::string> allowed;
  each_enumerator<Word>([&](Word word) {
    allowed.push_back(to_string(word));
    if (allowed.back() == text) found = word;
  });
  if (found) return *found;
  const std::string last = allowed.back();
  allowed.pop_back();
  return invalid("\"{}\" is not known here: allowed are \"{}\" and \"{}\"", text, fmt::join(allowed, "\", \""), last);
}

std::string to_string(const ScopeSource& source);
std::string to_string(const KeySource& source);

// "header:NAME", "jwt:CLAIM", "cookie:NAME", "client-cert", "host", each with a `?` behind it when optional, or
// "global".
Result<ScopeSource> parse_scope_source(std::string_view text);
// "header:NAME", "body:/json/pointer", "form:FIELD" or "fingerprint".
Result<KeySource> parse_key_source(std::string_view text);
// "GET /v1/charges?key={key}": GET or HEAD, one space, a target that holds {key}.
Result<Question> parse_probe(std::string_view text);
// "GET /v1/me": GET or HEAD, one space, a target.
Result<Question> parse_reauthorization(std::string_view text);
// An entry of fingerprint_ignore: an RFC 6901 pointer to something inside the document.
Status check_json_pointer(std::string_view text);

} // namespace oncekey
