// Twilio: `X-Twilio-Signature`, base64 of HMAC-SHA-1 over the URL and, for a form, every name and value in order of the
// names. Other bodies are covered through the URL: its query carries bodySHA256. Twilio itself is not consistent about
// the port in the URL it signs, so that it is tried with and without.
//
// A retried webhook keeps its I-Twilio-Idempotency-Token. A request without one is told by what was signed: the same
// URL and parameters are the same event.
#include "core/form.h"
#include "signatures/signing.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

constexpr std::string_view kTwilioToken = "I-Twilio-Idempotency-Token";
constexpr std::string_view kBodyHash = "bodySHA256";

// The URL's forms with and without a port, the one that was called first.
std::vector<std::string> url_forms(std::string_view url) {
  std::vector<std::string> forms{std::string(url)};
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return forms;
  const std::size_t host = scheme + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", host), url.size());
  const std::string_view authority = url.substr(host, end - host);
  // The last colon outside the brackets of an IPv6 address.
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (has_port) {
    forms.push_back(fmt::format("{}{}", url.substr(0, host + colon), url.substr(end)));
  } else {
    const std::string_view port = url.substr(0, scheme) == "https" ? ":443" : ":80";
    forms.push_back(fmt::format("{}{}{}", url.substr(0, end), port, url.substr(end)));
  }
  return forms;
}

// The value of bodySHA256 in the query; nothing if it is not there.
std::optional<std::string> body_hash_in(std::string_view url) {
  const std::size_t question = url.find('?');
  if (question == std::string_view::npos) return std::nullopt;
  const std::string_view query = url.substr(question + 1, url.find('#', question) - question - 1);
  const auto fields = parse_form(query);
  if (!fields) return std::nullopt;
  for (const FormField& field : *fields) {
    if (field.name == kBodyHash) return field.value.value_or("");
  }
  return std::nullopt;
}

// Names and values one behind the other, sorted; a pair that occurs twice counts once, as in Twilio's libraries.
std::optional<std::string> joined_parameters(std::string_view form) {
  const auto fields = parse_form(form);
  if (!fields) return std::nullopt;
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  pairs.reserve(fields->size());
  for (const FormField& field : *fields) {
    pairs.emplace_back(field.name, field.value ? std::string_view(*field.value) : std::string_view{});
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::string joined;
  for (const auto& [name, value] : pairs) joined.append(name).append(value);
  return joined;
}

// What is signed besides the URL, or why the signature does not cover this body.
std::variant<std::string, Refused> signed_parameters(const WebhookRequest& request) {
  const auto not_covered = [](std::string why) { return Refused{WebhookFault::body_not_covered, std::move(why)}; };
  if (const auto hash = body_hash_in(request.url)) {
    if (!equal_in_constant_time(*hash, sha256_hex({request.body}))) return not_covered("bodySHA256 is not the body's");
    return std::string();
  }
  if (request.body.empty()) return std::string();
  if (body_kind(request.headers) != BodyKind::form)
    return not_covered("the body is not a form, and the URL has no bodySHA256");
  auto parameters = joined_parameters(request.body);
  if (!parameters) return not_covered("the body is not a well-formed form");
  return *std::move(parameters);
}

} // namespace

Verification verify_twilio(const WebhookCheck& check) {
  const WebhookRequest& request = check.request;
  SignedHeaders headers(check);
  const std::string_view signature = headers.only("X-Twilio-Signature");
  if (headers.refused()) return *headers.refused();
  const auto signed_part = signed_parameters(request);
  if (const auto* refused = std::get_if<Refused>(&signed_part)) return *refused;
  const std::string& parameters = std::get<std::string>(signed_part);
  bool good = false;
  for (const std::string& url : url_forms(request.url)) {
    const std::array<std::string_view, 2> pieces{url, parameters};
    const bool matches = any_mac_matches(check.keys, pieces, {&signature, 1}, base64_encode);
    good = good || matches;
  }
  if (!good) return wrong_signature();
  if (!request.headers.has(kTwilioToken))
    return Verified{fmt::format("sha256:{}", sha256_hex({request.url, parameters})), std::nullopt};
  const std::string_view token = headers.only(kTwilioToken);
  if (headers.refused()) return *headers.refused();
  return verified_as(token, kTwilioToken);
}

} // namespace oncekey
