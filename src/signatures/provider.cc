#include "base/enum_name.h"
#include "core/json_pointer.h"
#include "core/key.h"
#include "signatures/signing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace oncekey {
namespace {

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
}

template <HashAlgorithm algorithm>
Status add_hmac_key(std::string_view secret, WebhookKeys& keys) {
  keys.macs.emplace_back(algorithm, secret);
  return ok_status();
}

struct NamedProvider {
  std::string_view name;
  Verification (*verify)(const WebhookCheck&);
  Status (*add_key)(std::string_view, WebhookKeys&) = add_hmac_key<HashAlgorithm::sha256>;
  WebhookProvider::Signs signs = WebhookProvider::Signs::not_the_url;
};

constexpr NamedProvider kProviders[] = {
    {"stripe", verify_stripe},
    {"github", verify_github},
    {"shopify", verify_shopify},
    {"standard", verify_standard, add_standard_key},
    {"slack", verify_slack},
    {"twilio", verify_twilio, add_hmac_key<HashAlgorithm::sha1>, WebhookProvider::Signs::the_url}};

} // namespace

std::string_view to_string(WebhookFault fault) { return enum_name(fault); }

Status WebhookProvider::add(std::string_view secret, WebhookKeys& keys) const {
  if (is_blank(secret)) return invalid("the secret is empty: every sender could sign with it");
  return add_key_(secret, keys);
}

Status WebhookProvider::check_secret(std::string_view secret) const {
  WebhookKeys unused;
  return add(secret, unused);
}

WebhookKeys WebhookProvider::keys_of(std::span<const std::string> secrets) const {
  WebhookKeys keys;
  if (secrets.empty()) keys.unusable = Refused{WebhookFault::secret_unusable, "no secret is configured"};
  for (const std::string& secret : secrets) {
    // A secret that cannot be used is a mistake in the configuration. Falling back to the others would hide it.
    const Status usable = add(secret, keys);
    if (usable) continue;
    keys.unusable = Refused{WebhookFault::secret_unusable, usable.fault().message};
    break;
  }
  return keys;
}

Verification WebhookProvider::verify(const WebhookRequest& request, const WebhookKeys& keys,
                                     std::chrono::seconds tolerance, WallSeconds now) const {
  if (keys.unusable) return *keys.unusable;
  return verify_({request, keys, tolerance, now});
}

Result<std::unique_ptr<WebhookProvider>> webhook_provider(std::string_view name) {
  std::string known;
  for (const NamedProvider& each : kProviders) {
    if (each.name == name) return std::make_unique<WebhookProvider>(each.verify, each.add_key, each.signs);
    known.append(each.name).append(", ");
  }
  return invalid(fmt::format("unknown provider \"{}\"; use one of {}hmac", name, known));
}

std::variant<std::string_view, Refused> only_header(const Headers& headers, std::string_view name) {
  switch (headers.count(name)) {
    case 0:
      return Refused{WebhookFault::header_missing, fmt::format("there is no {}", name)};
    case 1:
      break;
    default:
      return Refused{WebhookFault::header_malformed, fmt::format("{} is sent more than once", name)};
  }
  const std::string_view value = *headers.get(name);
  if (value.empty()) return Refused{WebhookFault::header_missing, fmt::format("{} is empty", name)};
  return value;
}

std::optional<WallSeconds> parse_unix_seconds(std::string_view text) {
  // Twelve digits last for thirty thousand years and cannot overflow.
  if (text.empty() || text.size() > 12 || (text.front() == '0' && text.size() > 1)) return std::nullopt;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || text.front() == '-') return std::nullopt;
  return WallSeconds(std::chrono::seconds(seconds));
}

std::optional<Refused> check_time(WallSeconds sent, std::chrono::seconds tolerance, WallSeconds now) {
  if (now - sent > tolerance)
    return Refused{WebhookFault::too_old, fmt::format("signed {} s ago", (now - sent).count())};
  if (sent - now > tolerance)
    return Refused{WebhookFault::too_new, fmt::format("signed {} s in the future", (sent - now).count())};
  return std::nullopt;
}

std::string_view SignedHeaders::only(std::string_view name, std::string_view prefix) {
  if (refused_) return {};
  auto header = only_header(check_.request.headers, name);
  if (auto* const refused = std::get_if<Refused>(&header)) {
    refused_ = std::move(*refused);
    return {};
  }
  const auto value = std::get<std::string_view>(header);
  if (value.starts_with(prefix)) return value.substr(prefix.size());
  refused_ = {WebhookFault::header_malformed, fmt::format("{} does not begin with {}", name, prefix)};
  return {};
}

std::string_view SignedHeaders::timely(std::string_view name) {
  const std::string_view text = only(name);
  if (refused_) return {};
  if (const auto sent = parse_unix_seconds(text)) {
    refused_ = check_time(*sent, check_.tolerance, check_.now);
  } else {
    refused_ = {WebhookFault::header_malformed, fmt::format("{} is not a time in whole seconds", name)};
  }
  return refused_ ? std::string_view{} : text;
}

bool any_mac_matches(const WebhookKeys& keys, std::span<const std::string_view> pieces,
                     std::span<const std::string_view> signatures, EncodeMac encode) {
  bool matches = false;
  for (const Hmac& mac : keys.macs) {
    const std::string expected = encode(mac.of(pieces));
    for (const std::string_view signature : signatures) {
      const bool same = equal_in_constant_time(expected, signature);
      matches = matches || same;
    }
  }
  return matches;
}

Verification verify_signed_body(const WebhookCheck& check, std::string_view signature_header, std::string_view prefix,
                                EncodeMac encode, std::string_view id_header) {
  SignedHeaders headers(check);
  const std::string_view signature = headers.only(signature_header, prefix);
  if (headers.refused()) return *headers.refused();
  if (!any_mac_matches(check.keys, {&check.request.body, 1}, {&signature, 1}, encode)) return wrong_signature();
  const std::string_view delivery = headers.only(id_header);
  if (headers.refused()) return *headers.refused();
  return verified_as(delivery, id_header);
}

Verification verified_as(std::string_view event_id, std::string_view source) {
  ParsedKey key = parse_plain_key(event_id);
  if (const auto* bad = std::get_if<BadKey>(&key))
    return Refused{WebhookFault::event_id_missing, fmt::format("{} cannot be an event id: {}", source, bad->why)};
  return Verified{std::get<std::string>(std::move(key)), std::nullopt, false};
}

Verification verified_by_body(std::string_view body, std::string_view pointer) {
  const JsonPlace place = find_in_json(body, pointer);
  if (place.kind != JsonPlace::Kind::string && place.kind != JsonPlace::Kind::number)
    return Refused{WebhookFault::event_id_missing, fmt::format("the body has no event id at {}", pointer)};
  return verified_as(place.text, fmt::format("{} of the body", pointer));
}

} // namespace oncekey
