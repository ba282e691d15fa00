#include "core/key.h"

#include "base/ascii.h"
#include "core/form.h"
#include "core/json_pointer.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

enum class Spaces { allowed, refused };

ParsedKey checked(std::string key, Spaces spaces) {
  if (key.empty()) return BadKey{"the key is empty"};
  if (key.size() > kKeyLengthMax)
    return BadKey{fmt::format("the key has {} characters, {} are allowed", key.size(), kKeyLengthMax)};
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == ' ' && spaces == Spaces::allowed) continue;
    if (byte <= ' ' || byte >= 0x7f) return BadKey{"the key holds something other than visible ASCII characters"};
  }
  return key;
}

// The part of RFC 9651 (section 4.2) that a key needs: an Item with a String, and parameters of any type behind it.
class StructuredStringReader {
 public:
  explicit StructuredStringReader(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  // How many characters of the set were taken.
  std::size_t take_all(std::string_view set) {
    const std::size_t count = std::min(rest_.find_first_not_of(set), rest_.size());
    rest_.remove_prefix(count);
    return count;
  }
  bool take(char wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool string(std::string& out) {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char c = next();
      if (c == '"') return true;
      if (c == '\\') {
        if (!begins_with_one_of("\"\\")) return false;
        out.push_back(next());
      } else if (c < 0x20 || c > 0x7e) {
        return false;
      } else {
        out.push_back(c);
      }
    }
    return false;
  }

  bool parameters() {
    while (take(';')) {
      take_all(" ");
      if (!begins_with_one_of(kParameterStart)) return false;
      take_all(kParameter);
      if (take('=') && !bare_item()) return false;
    }
    return true;
  }

 private:
  static constexpr std::string_view kDigits = "0123456789";
  static constexpr std::string_view kParameterStart = "abcdefghijklmnopqrstuvwxyz*";
  static constexpr std::string_view kParameter = "abcdefghijklmnopqrstuvwxyz0123456789_-.*";
  static constexpr std::string_view kTokenStart = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ*";
  static constexpr std::string_view kToken =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~:/";
  static constexpr std::string_view kBase64 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=";

  char next() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool begins_with_one_of(std::string_view set) const { return !rest_.empty() && set.find(rest_.front()) != set.npos; }

  bool bare_item() {
    std::string ignored;
    if (rest_.starts_with('"')) return string(ignored);
    if (rest_.starts_with('-') || begins_with_one_of(kDigits)) return number();
    if (begins_with_one_of(kTokenStart)) return take_all(kToken) > 0;
    if (take('?')) return take('0') || take('1');
    if (take(':')) {
      take_all(kBase64);
      return take(':');
    }
    if (take('@')) return date();
    return take('%') && display_string();
  }

  bool number() {
    take('-');
    const std::size_t whole = take_all(kDigits);
    if (whole == 0 || whole > 15) return false;
    if (!take('.')) return true;
    const std::size_t fraction = take_all(kDigits);
    return whole <= 12 && fraction >= 1 && fraction <= 3;
  }

  bool date() {
    take('-');
    const std::size_t whole = take_all(kDigits);
    return whole >= 1 && whole <= 15 && !rest_.starts_with('.');
  }

  // RFC 9651 asks for UTF-8 in the decoded text. Parameters are dropped here, so that this is not checked.
  bool display_string() {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char c = next();
      if (c == '"') return true;
      if (c < 0x20 || c > 0x7e) return false;
      if (c != '%') continue;
      if (rest_.size() < 2 || !consists_of(rest_.substr(0, 2), "0123456789abcdef")) return false;
      rest_.remove_prefix(2);
    }
    return false;
  }

  std::string_view rest_;
};

// One walk over the fields: whether `name` is there once, twice, or named as hop-by-hop by Connection.
struct HeaderUse {
  std::size_t lines = 0;
  std::string_view value; // of the first line
  bool in_connection = false;
};

HeaderUse use_of(const Headers& headers, std::string_view name) {
  HeaderUse use;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (equal_ignoring_case(field.name, name)) {
      if (use.lines++ == 0) use.value = field.value;
    } else if (equal_ignoring_case(field.name, "Connection")) {
      for_each_list_item(field.value, [&](std::string_view item) {
        if (equal_ignoring_case(item, name)) use.in_connection = true;
      });
    }
  }
  return use;
}

FoundKey as_found(ParsedKey parsed, std::string_view where) {
  if (auto* bad = std::get_if<BadKey>(&parsed))
    return Refusal{RefusalCode::key_invalid, fmt::format("In {}: {}.", where, bad->why)};
  return ClientKey{std::get<std::string>(std::move(parsed))};
}

FoundKey key_from_header(const Policy& policy, const Headers& headers, const std::string& name) {
  const HeaderUse use = use_of(headers, name);
  if (use.in_connection) return Refusal{RefusalCode::key_in_connection, fmt::format("The header is {}.", name)};
  if (use.lines == 0) return NoKey{};
  if (use.lines > 1) return Refusal{RefusalCode::key_repeated, fmt::format("{} was sent {} times.", name, use.lines)};
  return as_found(parse_key_header(policy.key_syntax, policy.strict, use.value), name);
}

FoundKey key_from_json(const Headers& headers, std::string_view body, const std::string& pointer) {
  JsonPlace place = find_in_json(body, pointer);
  switch (place.kind) {
    case JsonPlace::Kind::absent:
      return NoKey{};
    case JsonPlace::Kind::string:
    case JsonPlace::Kind::number:
      return as_found(parse_plain_key(place.text), pointer);
    case JsonPlace::Kind::other:
      return Refusal{RefusalCode::key_invalid, fmt::format("{} is neither a string nor a number.", pointer)};
    case JsonPlace::Kind::ambiguous:
      return Refusal{RefusalCode::key_repeated, fmt::format("The body has more than one {}.", pointer)};
    case JsonPlace::Kind::not_json:
      break;
  }
  // The upstream's parser may be more lenient and find a key in a body that this one cannot read: such a body would be
  // executed without protection. A body whose Content-Type is not JSON has no key.
  if (body.empty() || body_kind(headers) != BodyKind::json) return NoKey{};
  return Refusal{RefusalCode::key_invalid, "The body is not valid JSON, so its key cannot be found."};
}

FoundKey key_from_form(const Headers& headers, std::string_view body, const std::string& name) {
  if (body_kind(headers) != BodyKind::form) return NoKey{};
  const auto fields = parse_form(body);
  if (!fields) return Refusal{RefusalCode::key_invalid, "The body is not a valid form, so its key cannot be found."};
  const FormField* found = nullptr;
  for (const FormField& field : *fields) {
    if (field.name != name) continue;
    if (found) return Refusal{RefusalCode::key_repeated, fmt::format("The form has more than one {}.", name)};
    found = &field;
  }
  if (!found) return NoKey{};
  return as_found(parse_plain_key(found->value.value_or(std::string{})), name);
}

} // namespace

ParsedKey parse_key_header(KeySyntax syntax, bool strict, std::string_view value) {
  value = trimmed(value);
  switch (syntax) {
    case KeySyntax::raw:
      return checked(std::string(value), Spaces::refused);
    case KeySyntax::visible_ascii:
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
      return checked(std::string(value), Spaces::refused);
    case KeySyntax::structured_string:
      break;
  }
  // A bare UUID is neither a String nor a Token of RFC 9651, so that a lenient policy accepts any visible ASCII without
  // quotes. A value that starts with a quote must be a String: half a String is a bug of the client, not another key.
  if (!value.starts_with('"') && !strict) return checked(std::string(value), Spaces::refused);
  if (value.empty()) return BadKey{"the key is empty"};
  auto key = parse_structured_string(value);
  if (!key) return BadKey{"the key is not a structured-field string: write it in double quotes, as RFC 9651 describes"};
  return checked(*std::move(key), Spaces::allowed);
}

ParsedKey parse_plain_key(std::string_view text) { return checked(std::string(text), Spaces::refused); }

std::optional<std::string> parse_structured_string(std::string_view field) {
  StructuredStringReader reader(field);
  std::string key;
  reader.take_all(" ");
  if (!reader.string(key) || !reader.parameters()) return std::nullopt;
  reader.take_all(" ");
  if (!reader.at_end()) return std::nullopt;
  return key;
}

std::variant<HeadKey, Refusal> key_in_head(const Policy& policy, const Headers& headers) {
  HeadKey head;
  bool settled = false;
  for (std::size_t at = 0; at < policy.key_from.size(); ++at) {
    const KeySource& source = policy.key_from[at];
    FoundKey found = NoKey{};
    switch (source.kind) {
      // Looked at even when the key is found already: see key.h.
      case KeySource::Kind::header:
        found = key_from_header(policy, headers, source.name);
        break;
      case KeySource::Kind::fingerprint:
        found = KeyOfFingerprint{};
        break;
      case KeySource::Kind::body:
        head.maybe_in_body = head.maybe_in_body || !settled;
        break;
      case KeySource::Kind::form:
        head.maybe_in_body = head.maybe_in_body || (!settled && body_kind(headers) == BodyKind::form);
        break;
    }
    if (auto* refused = std::get_if<Refusal>(&found)) return std::move(*refused);
    if (settled || std::holds_alternative<NoKey>(found)) continue;
    settled = true;
    head.key = std::move(found);
    head.sources_before = at;
  }
  if (!settled) head.sources_before = policy.key_from.size();
  return head;
}

FoundKey find_key(const Policy& policy, const Headers& headers, HeadKey head, std::string_view body) {
  if (!head.maybe_in_body) return std::move(head.key);
  for (std::size_t at = 0; at < head.sources_before; ++at) {
    const KeySource& source = policy.key_from[at];
    FoundKey found = NoKey{};
    if (source.kind == KeySource::Kind::body) found = key_from_json(headers, body, source.name);
    if (source.kind == KeySource::Kind::form) found = key_from_form(headers, body, source.name);
    if (!std::holds_alternative<NoKey>(found)) return found;
  }
  return std::move(head.key);
}

} // namespace oncekey
