// hmac: for senders without a file of their own. The scheme is configuration: which header, which hash, what is signed.
#include "base/enum_name.h"
#include "core/json_pointer.h"
#include "signatures/signing.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

enum class Slot { text, body, timestamp, id, url };

struct TemplatePart {
  Slot slot = Slot::text;
  std::string text; // of Slot::text
};

// What stands between braces.
std::optional<Slot> slot_of(std::string_view name) {
  const std::optional<Slot> slot = enum_named<Slot>(name);
  return slot == Slot::text ? std::nullopt : slot;
}

Result<std::vector<TemplatePart>> parse_template(std::string_view text) {
  std::vector<TemplatePart> parts;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    if (open != 0) parts.push_back({Slot::text, std::string(text.substr(0, open))});
    if (open == std::string_view::npos) break;
    const std::size_t close = text.find('}', open);
    const auto slot = close == std::string_view::npos ? std::nullopt : slot_of(text.substr(open + 1, close - open - 1));
    if (!slot) {
      return invalid(
          fmt::format("the signed template has \"{}\": there are {{body}}, {{timestamp}}, {{id}} and {{url}}",
                      text.substr(open, close == std::string_view::npos ? close : close - open + 1)));
    }
    parts.push_back({*slot, {}});
    text.remove_prefix(close + 1);
  }
  return parts;
}

bool has_slot(const std::vector<TemplatePart>& parts, Slot slot) {
  return std::any_of(parts.begin(), parts.end(), [&](const TemplatePart& part) { return part.slot == slot; });
}

Status check_scheme(const HmacScheme& scheme, const std::vector<TemplatePart>& parts) {
  if (scheme.signature_header.empty()) return invalid("name the header that carries the signature");
  if (!has_slot(parts, Slot::body))
    return invalid("the signed template has no {body}: a signature that does not cover the body proves nothing");
  if (has_slot(parts, Slot::timestamp) != !scheme.timestamp_header.empty())
    return invalid(
        "a timestamp header and {timestamp} in the signed template go together: unsigned, a time is no proof");
  if (has_slot(parts, Slot::id) && scheme.id_header.empty())
    return invalid("{id} in the signed template stands for a header: name it");
  const std::string& text = scheme.signed_template;
  if (text.find("{id}{") != std::string::npos || text.find("}{id}") != std::string::npos)
    return invalid(
        "{id} stands next to another part with nothing between them: bytes could be moved from one to the other, and "
        "one event have two ids, under the same signature; put a character between them");
  if (scheme.id_header.empty() == scheme.id_pointer.empty())
    return invalid("say where the event id is: either a header or a JSON pointer into the body");
  if (!scheme.id_pointer.empty() && scheme.id_pointer.front() != '/')
    return invalid("the JSON pointer of the event id begins with a slash, as in /data/id");
  return ok_status();
}

// Both cases of hex are in use, and padding of base64 is left out by some: all of them mean the same bytes.
std::optional<std::string> decoded_signature(HmacScheme::Encoding encoding, std::string_view text) {
  if (encoding == HmacScheme::Encoding::hex) return hex_decode(text);
  std::string padded(text);
  if (padded.find('=') == std::string::npos) padded.append((4 - padded.size() % 4) % 4, '=');
  return base64_decode(padded);
}

std::string as_it_is(std::string_view mac) { return std::string(mac); }

class HmacVerifier {
 public:
  HmacVerifier(HmacScheme scheme, std::vector<TemplatePart> parts)
      : scheme_(std::move(scheme)), parts_(std::move(parts)) {}

  Verification operator()(const WebhookCheck& check) const {
    SignedHeaders headers(check);
    const std::string_view list = headers.only(scheme_.signature_header);
    if (headers.refused()) return *headers.refused();
    const auto parsed = signatures_in(list);
    if (const auto* refused = std::get_if<Refused>(&parsed)) return *refused;
    const auto time = scheme_.timestamp_header.empty() ? "" : headers.timely(scheme_.timestamp_header);
    const auto id = scheme_.id_header.empty() ? "" : headers.only(scheme_.id_header);
    if (headers.refused()) return *headers.refused();
    if (holds_a_separator(id)) {
      return Refused{WebhookFault::header_malformed,
                     fmt::format("{} holds what stands beside {{id}} in the signed template: one signature would fit "
                                 "several ids",
                                 scheme_.id_header)};
    }
    const auto& signatures = std::get<std::vector<std::string>>(parsed);
    const std::vector<std::string_view> views(signatures.begin(), signatures.end());
    const auto pieces = filled_template(check.request, time, id);
    if (!any_mac_matches(check.keys, pieces, views, as_it_is)) return wrong_signature();
    if (scheme_.id_header.empty()) return verified_by_body(check.request.body, scheme_.id_pointer);
    return verified_as(id, scheme_.id_header);
  }

 private:
  // An id that holds the template's text beside {id} is ambiguous: one signature would fit several divisions into id
  // and body.
  bool holds_a_separator(std::string_view id) const {
    for (std::size_t at = 0; at < parts_.size(); ++at) {
      if (parts_[at].slot != Slot::id) continue;
      const bool before = at > 0 && id.find(parts_[at - 1].text) != std::string_view::npos;
      const bool after = at + 1 < parts_.size() && id.find(parts_[at + 1].text) != std::string_view::npos;
      if (before || after) return true;
    }
    return false;
  }

  std::variant<std::vector<std::string>, Refused> signatures_in(std::string_view header) const {
    std::vector<std::string> signatures;
    std::size_t seen = 0;
    for_each_list_item(header, [&](std::string_view item) {
      if (++seen > kSignaturesMax || !item.starts_with(scheme_.prefix)) return;
      if (auto bytes = decoded_signature(scheme_.encoding, item.substr(scheme_.prefix.size())))
        signatures.push_back(*std::move(bytes));
    });
    if (seen > kSignaturesMax) return Refused{WebhookFault::header_malformed, "there are too many signatures"};
    if (signatures.empty()) {
      return Refused{WebhookFault::header_malformed,
                     fmt::format("{} holds no signature of the configured form", scheme_.signature_header)};
    }
    return signatures;
  }

  std::vector<std::string_view> filled_template(const WebhookRequest& request, std::string_view time,
                                                std::string_view id) const {
    std::vector<std::string_view> pieces;
    for (const TemplatePart& part : parts_) {
      const std::string_view by_slot[] = {part.text, request.body, time, id, request.url}; // in the order of Slot
      pieces.push_back(by_slot[static_cast<std::size_t>(part.slot)]);
    }
    return pieces;
  }

  HmacScheme scheme_;
  std::vector<TemplatePart> parts_;
};

} // namespace

Result<std::unique_ptr<WebhookProvider>> hmac_provider(HmacScheme scheme) {
  auto parts = parse_template(scheme.signed_template);
  if (!parts) return parts.fault();
  if (const Status sound = check_scheme(scheme, *parts); !sound) return sound.fault();
  const auto signs =
      has_slot(*parts, Slot::url) ? WebhookProvider::Signs::the_url : WebhookProvider::Signs::not_the_url;
  auto add_key = [algorithm = scheme.algorithm](std::string_view secret, WebhookKeys& keys) {
    keys.macs.emplace_back(algorithm, secret);
    return ok_status();
  };
  return std::make_unique<WebhookProvider>(HmacVerifier(std::move(scheme), *std::move(parts)), std::move(add_key),
                                           signs);
}

} // namespace oncekey
