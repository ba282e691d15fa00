#include "core/policy_text.h"

#include "base/ascii.h"

#include <oncekey/headers.h>

#include <tuple>

namespace oncekey {
namespace {

// The rest of `text` behind `prefix`, if it starts with it.
std::optional<std::string_view> behind(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

// "GET /path": GET or HEAD, one space, a target.
std::optional<Question> question_in(std::string_view text) {
  const std::size_t space = text.find(' ');
  const std::string_view method = text.substr(0, space);
  const std::string_view target = space == std::string_view::npos ? std::string_view{} : text.substr(space + 1);
  if ((method != "GET" && method != "HEAD") || !target.starts_with('/')) return std::nullopt;
  for (const char c : target)
    if (c <= ' ' || c >= 0x7f) return std::nullopt;
  return Question{std::string(method), std::string(target)};
}

} // namespace

std::string to_string(const ScopeSource& source) {
  std::string text(enum_name(source.kind));
  std::replace(text.begin(), text.end(), '_', '-'); // client-cert
  if (!source.name.empty()) text += ":" + source.name;
  return source.optional ? text + "?" : text;
}

std::string to_string(const KeySource& source) {
  const std::string kind(enum_name(source.kind));
  return source.name.empty() ? kind : kind + ":" + source.name;
}

Result<ScopeSource> parse_scope_source(std::string_view text) {
  if (text == "global") return ScopeSource{ScopeSource::Kind::global, "", false};
  std::string_view source = text;
  const bool optional = source.ends_with('?');
  if (optional) source.remove_suffix(1);
  if (source == "client-cert") return ScopeSource{ScopeSource::Kind::client_cert, "", optional};
  if (source == "host") return ScopeSource{ScopeSource::Kind::host, "", optional};
  for (const auto& [kind, prefix, what] :
       {std::tuple(ScopeSource::Kind::header, "header:", "header"), std::tuple(ScopeSource::Kind::jwt, "jwt:", "claim"),
        std::tuple(ScopeSource::Kind::cookie, "cookie:", "cookie")}) {
    const auto name = behind(source, prefix);
    if (!name) continue;
    if (kind == ScopeSource::Kind::header && equal_ignoring_case(*name, "Host"))
      return invalid("\"header:Host\" would take A.example:443 and a.example for two: write \"host\"");
    // A claim is a JSON member and may be named anything; the other two are tokens of HTTP.
    const bool good = kind == ScopeSource::Kind::jwt ? !name->empty() : is_token(*name);
    if (!good) return invalid("\"{}\" is not the name of a {}", *name, what);
    return ScopeSource{kind, std::string(*name), optional};
  }
  return invalid(
      "\"{}\" is not a scope: allowed are header:NAME, jwt:CLAIM, cookie:NAME, client-cert and host, each with a ? "
      "behind it when optional, and global",
      text);
}

Result<KeySource> parse_key_source(std::string_view text) {
  if (text == "fingerprint") return KeySource{KeySource::Kind::fingerprint, ""};
  if (const auto name = behind(text, "header:")) {
    if (!is_token(*name)) return invalid("\"{}\" is not the name of a header", *name);
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
      "\"{}\" is not a source of keys: allowed are header:NAME, body:/json/pointer, form:FIELD and fingerprint", text);
}

Result<Question> parse_probe(std::string_view text) {
  auto question = question_in(text);
  if (!question)
    return invalid(
        "\"{}\" is not a probe: write GET or HEAD, a space and a path, as in \"GET /v1/charges?key={{key}}\"", text);
  if (question->target.find("{key}") == std::string::npos)
    return invalid("the probe \"{}\" does not hold {{key}}: without it every key would be given the same answer", text);
  return *std::move(question);
}

Result<Question> parse_reauthorization(std::string_view text) {
  if (auto question = question_in(text)) return *std::move(question);
  return invalid("\"{}\" is not a request to the API: write GET or HEAD, a space and a path, as in \"GET /v1/me\"",
                 text);
}

Status check_json_pointer(std::string_view text) {
  if (!text.starts_with('/'))
    return invalid("\"{}\" is not a JSON pointer into a document: it starts with a slash, as in /metadata", text);
  for (std::size_t at = text.find('~'); at != std::string_view::npos; at = text.find('~', at + 1)) {
    if (at + 1 < text.size() && (text[at + 1] == '0' || text[at + 1] == '1')) continue;
    return invalid("\"{}\" is not a JSON pointer: ~ is written ~0 and / inside a name is written ~1", text);
  }
  return ok_status();
}

} // namespace oncekey
