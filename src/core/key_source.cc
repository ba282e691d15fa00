// Where a request's key is looked for.
#include "core/form.h"
#include "core/json_pointer.h"
#include "core/key.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

Refusal refusal(RefusalCode code, std::string detail) { return {code, std::move(detail), std::nullopt, {}}; }

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
  if (auto* bad = std::get_if<BadKey>(&parsed)) {
    return refusal(RefusalCode::key_invalid, fmt::format("In {}: {}.", where, bad->why));
  }
  return ClientKey{std::get<std::string>(std::move(parsed))};
}

FoundKey key_from_header(const Policy& policy, const Headers& headers, const std::string& name) {
  const HeaderUse use = use_of(headers, name);
  if (use.in_connection) {
    return refusal(RefusalCode::key_in_connection, fmt::format("The header is {}.", name));
  }
  if (use.lines == 0) return NoKey{};
  if (use.lines > 1) {
    return refusal(RefusalCode::key_repeated, fmt::format("{} was sent {} times.", name, use.lines));
  }
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
      return refusal(RefusalCode::key_invalid, fmt::format("{} is neither a string nor a number.", pointer));
    case JsonPlace::Kind::ambiguous:
      return refusal(RefusalCode::key_repeated, fmt::format("The body has more than one {}.", pointer));
    case JsonPlace::Kind::not_json:
      break;
  }
  // The upstream's parser may be more lenient and find a key in a body that this one cannot read: such a body would be
  // executed without protection. A body whose Content-Type is not JSON has no key.
  if (body.empty() || body_kind(headers) != BodyKind::json) return NoKey{};
  return refusal(RefusalCode::key_invalid, "The body is not valid JSON, so its key cannot be found.");
}

FoundKey key_from_form(const Headers& headers, std::string_view body, const std::string& name) {
  if (body_kind(headers) != BodyKind::form) return NoKey{};
  const auto fields = parse_form(body);
  if (!fields) return refusal(RefusalCode::key_invalid, "The body is not a valid form, so its key cannot be found.");
  const FormField* found = nullptr;
  for (const FormField& field : *fields) {
    if (field.name != name) continue;
    if (found) return refusal(RefusalCode::key_repeated, fmt::format("The form has more than one {}.", name));
    found = &field;
  }
  if (!found) return NoKey{};
  return as_found(parse_plain_key(found->value.value_or(std::string{})), name);
}

} // namespace

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
