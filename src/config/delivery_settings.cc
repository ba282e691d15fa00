// The settings of [[webhook]] and [[destination]].
#include "config/delivery.h"
#include "config/secret.h"
#include "config/settings.h"
#include "config/suggestion.h"

#include <algorithm>
#include <array>

namespace oncekey {
namespace {

using WebNode = toml::node;

constexpr Millis kShortestPause{1};
// More deliveries at one time would be a load test of the receiver.
constexpr std::int64_t kMostDeliveries = 1024;

Status read_secrets(const WebNode& node, Webhook& webhook) {
  auto texts = as_texts(node);
  if (!texts) return std::move(texts).fault();
  webhook.secrets.clear();
  for (const std::string& text : *texts) {
    auto secret = secret_kept_elsewhere(text);
    if (!secret) return std::move(secret).fault();
    webhook.secrets.push_back(std::move(secret).value());
  }
  return ok_status();
}

Status read_algorithm(const WebNode& node, Webhook& webhook) {
  static constexpr std::array<std::pair<std::string_view, HashAlgorithm>, 3> kAlgorithms{
      {{"sha1", HashAlgorithm::sha1}, {"sha256", HashAlgorithm::sha256}, {"sha512", HashAlgorithm::sha512}}};
  const auto text = as_text(node);
  if (!text) return text.fault();
  for (const auto& [name, algorithm] : kAlgorithms) {
    if (*text != name) continue;
    webhook.hmac.algorithm = algorithm;
    return ok_status();
  }
  return invalid(fmt::format("\"{}\" is not one of \"sha1\", \"sha256\", \"sha512\"", *text));
}

Status read_encoding(const WebNode& node, Webhook& webhook) {
  const auto text = as_text(node);
  if (!text) return text.fault();
  if (*text != "hex" && *text != "base64")
    return invalid(fmt::format("\"{}\" is neither \"hex\" nor \"base64\"", *text));
  webhook.hmac.encoding = *text == "hex" ? HmacScheme::Encoding::hex : HmacScheme::Encoding::base64;
  return ok_status();
}

Status read_hook_path(const WebNode& node, Webhook& webhook) {
  const Status read = put(webhook.path, as_text(node));
  if (!read) return read;
  if (!webhook.path.starts_with('/') || webhook.path.find_first_of("?#*{}<> ") != std::string::npos ||
      webhook.path.find("/:") != std::string::npos)
    return invalid("a webhook's path begins with / and is meant exactly: leave out *, ?, #, {name} and :name");
  std::string normal = normal_glob(webhook.path);
  if (normal.empty())
    return invalid(
        "a webhook's path is compared in normal form: leave out dot segments, backslashes, `;parameters`, encoded "
        "slashes "
        "and semicolons, and % without two digits");
  webhook.path = std::move(normal);
  return ok_status();
}

Status read_repetition(const WebNode& node, Webhook& webhook) {
  const auto text = as_text(node);
  if (!text) return text.fault();
  if (*text != "signed" && *text != "id") return invalid(fmt::format("\"{}\" is neither \"signed\" nor \"id\"", *text));
  webhook.repetition = *text == "signed" ? Repetition::by_what_is_signed : Repetition::by_id;
  return ok_status();
}

Status read_authorization(const WebNode& node, Endpoint& endpoint) {
  auto text = as_text(node);
  if (!text) return std::move(text).fault();
  const Status read = put(endpoint.authorization, secret_kept_elsewhere(*text));
  if (read && endpoint.authorization.find_first_of("\r\n") != std::string::npos)
    return invalid("an Authorization field has no line breaks");
  return read;
}

constexpr Setting<Webhook> kWebhookSettings[] = {
    {"path", read_hook_path},
    {"provider", [](const WebNode& v, Webhook& w) { return put(w.provider, as_text(v)); }},
    {"secrets", read_secrets},
    {"tolerance", [](const WebNode& v, Webhook& w) { return put(w.tolerance, as_duration(v, Millis(1000))); }},
    {"max_body", [](const WebNode& v, Webhook& w) { return put(w.max_body, as_bytes(v)); }},
    {"url", [](const WebNode& v, Webhook& w) { return put(w.url, as_text(v)); }},
    {"order_by", [](const WebNode& v, Webhook& w) { return put(w.order_by, as_text(v)); }},
    {"repetition", read_repetition},
    {"signature_header", [](const WebNode& v, Webhook& w) { return put(w.hmac.signature_header, as_text(v)); }},
    {"algorithm", read_algorithm},
    {"encoding", read_encoding},
    {"signature_prefix", [](const WebNode& v, Webhook& w) { return put(w.hmac.prefix, as_text(v)); }},
    {"signed", [](const WebNode& v, Webhook& w) { return put(w.hmac.signed_template, as_text(v)); }},
    {"timestamp_header", [](const WebNode& v, Webhook& w) { return put(w.hmac.timestamp_header, as_text(v)); }},
    {"id_header", [](const WebNode& v, Webhook& w) { return put(w.hmac.id_header, as_text(v)); }},
    {"id_pointer", [](const WebNode& v, Webhook& w) { return put(w.hmac.id_pointer, as_text(v)); }},
};

constexpr Setting<Endpoint> kEndpointSettings[] = {
    {"timeout", [](const WebNode& v, Endpoint& e) { return put(e.timeout, as_duration(v, kShortestPause)); }},
    {"concurrency", [](const WebNode& v, Endpoint& e) { return put_count(e.concurrency, v, 1, kMostDeliveries); }},
    {"budget", [](const WebNode& v, Endpoint& e) { return put(e.budget, as_duration(v, kShortestPause)); }},
    {"remember", [](const WebNode& v, Endpoint& e) { return put(e.remember, as_duration(v, Millis(1000))); }},
    {"first_pause", [](const WebNode& v, Endpoint& e) { return put(e.first_pause, as_duration(v, kShortestPause)); }},
    {"longest_pause",
     [](const WebNode& v, Endpoint& e) { return put(e.longest_pause, as_duration(v, kShortestPause)); }},
    {"keep_delivered", [](const WebNode& v, Endpoint& e) { return put(e.keep_delivered, as_switch(v)); }},
    {"ca", [](const WebNode& v, Endpoint& e) { return put(e.ca_file, as_text(v)); }},
    {"authorization", read_authorization},
};

} // namespace

std::span<const Setting<Webhook>> webhook_settings() { return kWebhookSettings; }
std::span<const Setting<Endpoint>> endpoint_settings() { return kEndpointSettings; }

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
