// The settings of [[webhook]] and [[destination]].
#include "base/enum_name.h"
#include "base/masked_url.h"
#include "config/secret.h"
#include "config/settings.h"

#include <algorithm>
#include <optional>

namespace oncekey {
namespace {

constexpr Millis kShortestPause{1};
// More deliveries at one time would be a load test of the receiver.
constexpr std::int64_t kMostDeliveries = 1024;

// One of two words, of which the first stands for `first`.
template <class Enum>
Result<Enum> as_either(const Node& node, std::string_view one, std::string_view other, Enum first, Enum second) {
  return and_then(as_text(node), [&](const std::string& text) -> Result<Enum> {
    if (text == one || text == other) return text == one ? first : second;
    return invalid("\"{}\" is neither \"{}\" nor \"{}\"", text, one, other);
  });
}

Result<HashAlgorithm> parse_algorithm(std::string_view text) {
  std::optional<HashAlgorithm> found;
  each_enumerator<HashAlgorithm>([&](HashAlgorithm each) { found = enum_name(each) == text ? each : found; });
  if (found) return *found;
  return invalid("\"{}\" is not one of \"sha1\", \"sha256\", \"sha512\"", text);
}

Result<Url> parse_endpoint(std::string_view text) {
  auto url = parse_url(text);
  if (url) return url;
  return invalid("\"{}\" is not a URL: {}", masked_url(text), url.fault().message);
}

Result<std::string> parse_hook_path(std::string_view path) {
  if (!path.starts_with('/') || path.find_first_of("?#*{}<> ") != std::string_view::npos ||
      path.find("/:") != std::string_view::npos)
    return invalid("a webhook's path begins with / and is meant exactly: leave out *, ?, #, {name} and :name");
  std::string normal = normal_glob(path);
  if (!normal.empty()) return normal;
  return invalid(
      "a webhook's path is compared in normal form: leave out dot segments, backslashes, `;parameters`, encoded "
      "slashes and semicolons, and % without two digits");
}

Result<std::string> parse_authorization(std::string_view text) {
  auto secret = secret_kept_elsewhere(text);
  if (secret && secret->find_first_of("\r\n") != std::string::npos)
    return invalid("an Authorization field has no line breaks");
  return secret;
}

constexpr Setting<Webhook> kWebhookSettings[] = {
    {"deliver_to", [](auto& v, auto& w) { return put(w.endpoint.url, parsed(v, parse_endpoint)); }},
    {"path", [](auto& v, auto& w) { return put(w.path, parsed(v, parse_hook_path)); }},
    {"provider", [](auto& v, auto& w) { return put(w.provider, as_text(v)); }},
    {"secrets", [](auto& v, auto& w) { return put(w.secrets, as_list(v, secret_kept_elsewhere, Twice::allowed)); }},
    {"tolerance", [](auto& v, auto& w) { return put(w.tolerance, as_duration(v, Millis(1000))); }},
    {"max_body", [](auto& v, auto& w) { return put(w.max_body, as_bytes(v)); }},
    {"url", [](auto& v, auto& w) { return put(w.url, as_text(v)); }},
    {"order_by", [](auto& v, auto& w) { return put(w.order_by, as_text(v)); }},
    {"repetition",
     [](auto& v, auto& w) {
       return put(w.repetition, as_either(v, "signed", "id", Repetition::by_what_is_signed, Repetition::by_id));
     }},
    {"signature_header", [](auto& v, auto& w) { return put(w.hmac.signature_header, as_text(v)); }},
    {"algorithm", [](auto& v, auto& w) { return put(w.hmac.algorithm, parsed(v, parse_algorithm)); }},
    {"encoding",
     [](auto& v, auto& w) {
       return put(w.hmac.encoding,
                  as_either(v, "hex", "base64", HmacScheme::Encoding::hex, HmacScheme::Encoding::base64));
     }},
    {"signature_prefix", [](auto& v, auto& w) { return put(w.hmac.prefix, as_text(v)); }},
    {"signed", [](auto& v, auto& w) { return put(w.hmac.signed_template, as_text(v)); }},
    {"timestamp_header", [](auto& v, auto& w) { return put(w.hmac.timestamp_header, as_text(v)); }},
    {"id_header", [](auto& v, auto& w) { return put(w.hmac.id_header, as_text(v)); }},
    {"id_pointer", [](auto& v, auto& w) { return put(w.hmac.id_pointer, as_text(v)); }},
};

constexpr Setting<Endpoint> kDestinationSettings[] = {
    {"name", [](auto& v, auto& e) { return put(e.name, as_text(v)); }},
    {"url", [](auto& v, auto& e) { return put(e.url, parsed(v, parse_endpoint)); }},
};

constexpr Setting<Endpoint> kEndpointSettings[] = {
    {"timeout", [](auto& v, auto& e) { return put(e.timeout, as_duration(v, kShortestPause)); }},
    {"concurrency", [](auto& v, auto& e) { return put_count(e.concurrency, v, 1, kMostDeliveries); }},
    {"budget", [](auto& v, auto& e) { return put(e.budget, as_duration(v, kShortestPause)); }},
    {"remember", [](auto& v, auto& e) { return put(e.remember, as_duration(v, Millis(1000))); }},
    {"first_pause", [](auto& v, auto& e) { return put(e.first_pause, as_duration(v, kShortestPause)); }},
    {"longest_pause", [](auto& v, auto& e) { return put(e.longest_pause, as_duration(v, kShortestPause)); }},
    {"keep_delivered", [](auto& v, auto& e) { return put(e.keep_delivered, as_switch(v)); }},
    {"ca", [](auto& v, auto& e) { return put(e.ca_file, as_text(v)); }},
    {"authorization", [](auto& v, auto& e) { return put(e.authorization, parsed(v, parse_authorization)); }},
};

} // namespace

Settings<Webhook> webhook_settings() { return kWebhookSettings; }
Settings<Endpoint> destination_settings() { return kDestinationSettings; }
Settings<Endpoint> endpoint_settings() { return kEndpointSettings; }

Result<std::shared_ptr<const WebhookProvider>> provider_without_secrets(const Webhook& webhook) {
  auto made = webhook.provider == "hmac" ? hmac_provider(webhook.hmac) : webhook_provider(webhook.provider);
  if (!made) return std::move(made).fault();
  return std::shared_ptr<const WebhookProvider>(std::move(made).value());
}

Status check_secrets(const WebhookProvider& provider, const Webhook& webhook) {
  if (webhook.secrets.empty()) return invalid("is empty: name at least one secret, or no request can be verified");
  for (const std::string& secret : webhook.secrets) {
    if (Status fit = provider.check_secret(secret); !fit) return fit;
  }
  return ok_status();
}

Result<std::shared_ptr<const WebhookProvider>> provider_of(const Webhook& webhook) {
  auto provider = provider_without_secrets(webhook);
  if (!provider) return provider;
  if (const Status usable = check_secrets(**provider, webhook); !usable) return usable.fault();
  return provider;
}

bool has_endpoint(const Config& config, std::string_view name) {
  const auto is_it = [&](const Endpoint& endpoint) { return endpoint.name == name; };
  return std::any_of(config.destinations.begin(), config.destinations.end(), is_it) ||
         std::any_of(config.webhooks.begin(), config.webhooks.end(),
                     [&](const Webhook& webhook) { return is_it(webhook.endpoint); });
}

} // namespace oncekey
