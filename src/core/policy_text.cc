#include "core/policy_text.h"

#include <oncekey/headers.h>

#include <fmt/format.h>

#include <optional>

namespace oncekey {
namespace {

template <class Enum>
struct Spelling {
  Enum value;
  std::string_view text;
};

constexpr Spelling<KeySyntax> kKeySyntaxes[] = {{KeySyntax::visible_ascii, "visible-ascii"},
                                                {KeySyntax::structured_string, "structured-string"},
                                                {KeySyntax::raw, "raw"}};
constexpr Spelling<Identity> kIdentities[] = {{Identity::key, "key"}, {Identity::operation_key, "operation-key"}};
constexpr Spelling<FingerprintMode> kFingerprintModes[] = {{FingerprintMode::bytes, "bytes"},
                                                           {FingerprintMode::canonical, "canonical"}};
constexpr Spelling<MissingKey> kMissingKeys[] = {{MissingKey::pass, "pass"}, {MissingKey::required, "required"}};
constexpr Spelling<OnUnknown> kOnUnknowns[] = {{OnUnknown::hold, "hold"}, {OnUnknown::abandon, "abandon"}};
constexpr Spelling<OnAbandoned> kOnAbandoneds[] = {
    {OnAbandoned::hold, "hold"}, {OnAbandoned::reexecute, "reexecute"}, {OnAbandoned::probe, "probe"}};
constexpr Spelling<OnStoreError> kOnStoreErrors[] = {{OnStoreError::refuse, "refuse"},
                                                     {OnStoreError::bypass, "bypass"}};
constexpr Spelling<Mode> kModes[] = {{Mode::enforce, "enforce"}, {Mode::observe, "observe"}};
constexpr Spelling<PathCase> kPathCases[] = {{PathCase::exact, "exact"}, {PathCase::ignore, "ignore"}};
constexpr Spelling<ErrorFormat> kErrorFormats[] = {
    {ErrorFormat::problem, "problem"}, {ErrorFormat::problem_link, "problem-link"}, {ErrorFormat::stripe, "stripe"}};

template <class Enum, std::size_t N>
std::string_view spelling_of(const Spelling<Enum> (&table)[N], Enum value) {
  for (const Spelling<Enum>& entry : table) {
    if (entry.value == value) return entry.text;
  }
  return "unknown";
}

template <class Enum, std::size_t N>
Result<Enum> value_of(const Spelling<Enum> (&table)[N], std::string_view text) {
  std::string allowed;
  for (std::size_t i = 0; i < N; ++i) {
    if (table[i].text == text) return table[i].value;
    if (i != 0) allowed += i + 1 == N ? " and " : ", ";
    allowed += fmt::format("\"{}\"", table[i].text);
  }
  return invalid(fmt::format("\"{}\" is not known here: allowed are {}", text, allowed));
}

// RFC 9110 token: what a header or cookie name is made of.
bool is_token(std::string_view text) {
  for (const char c : text) {
    const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!alphanumeric && std::string_view("!#$%&'*+-.^_`|~").find(c) == std::string_view::npos) return false;
  }
  return !text.empty();
}

// The rest of `text` behind `prefix`, if it starts with it.
std::optional<std::string_view> behind(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

// "GET /path": GET or HEAD, one space, a target.
struct Question {
  std::string_view method;
  std::string_view target;
  bool good;
};
Question split_question(std::string_view text) {
  const std::size_t space = text.find(' ');
  const std::string_view method = text.substr(0, space);
  const std::string_view target = space == std::string_view::npos ? std::string_view{} : text.substr(space + 1);
  bool good = (method == "GET" || method == "HEAD") && target.starts_with('/');
  for (const char c : target) good = good && c > ' ' && c < 0x7f;
  return {method, target, good};
}

Result<ScopeSource> scope_source(ScopeSource::Kind kind, std::string_view name, std::string_view what, bool optional) {
  // A claim is a JSON member and may be named anything; the other two are tokens of HTTP.
  const bool good = kind == ScopeSource::Kind::jwt ? !name.empty() : is_token(name);
  if (!good) return invalid(fmt::format("\"{}\" is not the name of a {}", name, what));
  return ScopeSource{kind, std::string(name), optional};
}

} // namespace

std::string_view to_string(KeySyntax syntax) { return spelling_of(kKeySyntaxes, syntax); }
std::string_view to_string(Identity identity) { return spelling_of(kIdentities, identity); }
std::string_view to_string(FingerprintMode mode) { return spelling_of(kFingerprintModes, mode); }
std::string_view to_string(MissingKey rule) { return spelling_of(kMissingKeys, rule); }
std::string_view to_string(OnUnknown rule) { return spelling_of(kOnUnknowns, rule); }
std::string_view to_string(OnAbandoned rule) { return spelling_of(kOnAbandoneds, rule); }
std::string_view to_string(OnStoreError rule) { return spelling_of(kOnStoreErrors, rule); }
std::string_view to_string(Mode mode) { return spelling_of(kModes, mode); }
std::string_view to_string(PathCase path_case) { return spelling_of(kPathCases, path_case); }
std::string_view to_string(ErrorFormat format) { return spelling_of(kErrorFormats, format); }

Result<KeySyntax> parse_key_syntax(std::string_view text) { return value_of(kKeySyntaxes, text); }
Result<Identity> parse_identity(std::string_view text) { return value_of(kIdentities, text); }
Result<FingerprintMode> parse_fingerprint_mode(std::string_view text) { return value_of(kFingerprintModes, text); }
Result<MissingKey> parse_missing_key(std::string_view text) { return value_of(kMissingKeys, text); }
Result<OnUnknown> parse_on_unknown(std::string_view text) { return value_of(kOnUnknowns, text); }
Result<OnAbandoned> parse_on_abandoned(std::string_view text) { return value_of(kOnAbandoneds, text); }
Result<OnStoreError> parse_on_store_error(std::string_view text) { return value_of(kOnStoreErrors, text); }
Result<Mode> parse_mode(std::string_view text) { return value_of(kModes, text); }
Result<PathCase> parse_path_case(std::string_view text) { return value_of(kPathCases, text); }
Result<ErrorFormat> parse_error_format(std::string_view text) { return value_of(kErrorFormats, text); }

std::string to_string(const ScopeSource& source) {
  const char* const mark = source.optional ? "?" : "";
  switch (source.kind) {
    case ScopeSource::Kind::header:
      return fmt::format("header:{}{}", source.name, mark);
    case ScopeSource::Kind::jwt:
      return fmt::format("jwt:{}{}", source.name, mark);
    case ScopeSource::Kind::cookie:
      return fmt::format("cookie:{}{}", source.name, mark);
    case ScopeSource::Kind::client_cert:
      return fmt::format("client-cert{}", mark);
    case ScopeSource::Kind::host:
      return fmt::format("host{}", mark);
    case ScopeSource::Kind::global:
      return "global";
  }
  return "unknown";
}

std::string to_string(const KeySource& source) {
  switch (source.kind) {
    case KeySource::Kind::header:
      return fmt::format("header:{}", source.name);
    case KeySource::Kind::body:
      return fmt::format("body:{}", source.name);
    case KeySource::Kind::form:
      return fmt::format("form:{}", source.name);
    case KeySource::Kind::fingerprint:
      return "fingerprint";
  }
  return "unknown";
}

std::string to_string(const Probe& probe) { return fmt::format("{} {}", probe.method, probe.target_template); }
std::string to_string(const Reauthorization& question) {
  return fmt::format("{} {}", question.method, question.target);
}

Result<ScopeSource> parse_scope_source(std::string_view text) {
  if (text == "global") return ScopeSource{ScopeSource::Kind::global, "", false};
  std::string_view source = text;
  const bool optional = source.ends_with('?');
  if (optional) source.remove_suffix(1);
  if (source == "client-cert") return ScopeSource{ScopeSource::Kind::client_cert, "", optional};
  if (source == "host") return ScopeSource{ScopeSource::Kind::host, "", optional};
  if (const auto name = behind(source, "header:")) {
    if (equal_ignoring_case(*name, "Host")) {
      return invalid("\"header:Host\" would take A.example:443 and a.example for two: write \"host\"");
    }
    return scope_source(ScopeSource::Kind::header, *name, "header", optional);
  }
  if (const auto name = behind(source, "jwt:")) return scope_source(ScopeSource::Kind::jwt, *name, "claim", optional);
  if (const auto name = behind(source, "cookie:")) {
    return scope_source(ScopeSource::Kind::cookie, *name, "cookie", optional);
  }
  return invalid(
      fmt::format("\"{}\" is not a scope: allowed are header:NAME, jwt:CLAIM, cookie:NAME, client-cert and host, each "
                  "with a ? behind it when optional, and global",
                  text));
}

Result<KeySource> parse_key_source(std::string_view text) {
  if (text == "fingerprint") return KeySource{KeySource::Kind::fingerprint, ""};
  if (const auto name = behind(text, "header:")) {
    if (!is_token(*name)) return invalid(fmt::format("\"{}\" is not the name of a header", *name));
    return KeySource{KeySource::Kind::header, std::string(*name)};
  }
  if (const auto pointer = behind(text, "body:")) {
    if (const Status good = check_json_pointer(*pointer); !good) return good.fault();
    return KeySource{KeySource::Kind::body, std::string(*pointer)};
  }
  if (const auto field = behind(text, "form:")) {
    if (field->empty()) return invalid("form: needs the name of a field behind it");
    return KeySource{KeySource::Kind::form, std::string(*field)};
  }
  return invalid(
      fmt::format("\"{}\" is not a source of keys: allowed are header:NAME, body:/json/pointer, form:FIELD "
                  "and fingerprint",
                  text));
}

Result<Probe> parse_probe(std::string_view text) {
  const auto [method, target, good] = split_question(text);
  if (!good) {
    return invalid(fmt::format(
        "\"{}\" is not a probe: write GET or HEAD, a space and a path, as in \"GET /v1/charges?key={{key}}\"", text));
  }
  if (target.find("{key}") == std::string_view::npos) {
    return invalid(
        fmt::format("the probe \"{}\" does not hold {{key}}: without it every key would be given the same "
                    "answer",
                    text));
  }
  return Probe{std::string(method), std::string(target)};
}

Result<Reauthorization> parse_reauthorization(std::string_view text) {
  const auto [method, target, good] = split_question(text);
  if (!good) {
    return invalid(
        fmt::format("\"{}\" is not a request to the API: write GET or HEAD, a space and a path, as in "
                    "\"GET /v1/me\"",
                    text));
  }
  return Reauthorization{std::string(method), std::string(target)};
}

Status check_json_pointer(std::string_view text) {
  if (!text.starts_with('/')) {
    return invalid(
        fmt::format("\"{}\" is not a JSON pointer into a document: it starts with a slash, as in /metadata", text));
  }
  for (std::size_t at = text.find('~'); at != std::string_view::npos; at = text.find('~', at + 1)) {
    if (at + 1 < text.size() && (text[at + 1] == '0' || text[at + 1] == '1')) continue;
    return invalid(
        fmt::format("\"{}\" is not a JSON pointer: ~ is written ~0 and / inside a name is written ~1", text));
  }
  return ok_status();
}

} // namespace oncekey
