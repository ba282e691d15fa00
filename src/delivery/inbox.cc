#include "delivery/inbox.h"

#include "config/config.h"
#include "core/json_pointer.h"
#include "core/refusal.h"
#include "delivery/staging.h"
#include "http/forwarding.h"
#include "signatures/provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kAccepted = R"({"received":true,"duplicate":false})";
constexpr std::string_view kDuplicate = R"({"received":true,"duplicate":true})";

// The URL as the sender knows it; empty unless it is signed.
std::string url_known_to_sender(const WebhookProvider& provider, const Webhook& webhook, const Exchange& exchange) {
  if (provider.signs() != WebhookProvider::Signs::the_url) return {};
  const RequestHead& head = exchange.request();
  if (webhook.url.empty()) {
    return fmt::format("{}://{}{}", exchange.secure() ? "https" : "http", head.headers.get("Host").value_or(""),
                       head.target);
  }
  const std::size_t question = head.target.find('?');
  return question == std::string::npos ? webhook.url : webhook.url + head.target.substr(question);
}

// All that the sender sent, and where it came from. A delivery is a new request of the gateway: no proxy has forwarded
// it yet.
Headers headers_to_deliver(const Exchange& exchange, const ProxyIdentity& self) {
  Headers headers =
      fields_without_via(exchange.request(), {exchange.peer(), exchange.secure()}, self, {"Host", "Idempotency-Key"});
  // Some senders sign it and put what they mean into it; the URL of the delivery is the receiver's own.
  const std::string& target = exchange.request().target;
  if (const std::size_t question = target.find('?'); question != std::string::npos)
    headers.add("Oncekey-Query", target.substr(question + 1));
  return headers;
}

class Inbox final : public Handler {
 public:
  Inbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers, Loop& loop, Handler& gateway)
      : shared_(shared), metrics_(metrics), couriers_(couriers), loop_(loop), gateway_(gateway) {
    json_.add("Content-Type", "application/json");
  }

  // A fault says which webhook cannot be used and why.
  Status open() {
    for (const Webhook& webhook : shared_.config().webhooks) {
      const std::string& name = webhook.endpoint.name;
      auto provider = provider_of(webhook);
      if (!provider) return std::move(provider).fault();
      WebhookKeys keys = (*provider)->keys_of(webhook.secrets);
      hooks_.push_back({webhook, std::move(provider).value(), std::move(keys), job_for(webhook.endpoint),
                        metrics_.receipts(name, "staged"), metrics_.receipts(name, "duplicate")});
    }
    return ok_status();
  }

  Task<void> handle(Exchange& exchange) override {
    if (hooks_.empty()) return gateway_.handle(exchange);
    const NormalPath path(exchange.request().path());
    const Hook* const hook = find(path.text());
    if (ambiguous(path, hook)) return refuse_path(exchange, path.why_ambiguous());
    if (hook == nullptr) return gateway_.handle(exchange);
    return receive(exchange, *hook);
  }

 private:
  struct Hook {
    const Webhook& webhook;
    std::shared_ptr<const WebhookProvider> provider;
    WebhookKeys keys;
    StageRequest job; // what all jobs have in common
    prometheus::Counter& staged;
    prometheus::Counter& duplicates;
  };

  // Null if no webhook has this path, which is in normal form.
  const Hook* find(std::string_view path) const {
    for (const Hook& hook : hooks_) {
      const bool same = shared_.config().path_case == PathCase::ignore ? equal_ignoring_case(hook.webhook.path, path)
                                                                       : hook.webhook.path == path;
      if (same) return &hook;
    }
    return nullptr;
  }

  // Servers may take the path for that of a webhook, and for another one too.
  bool ambiguous(const NormalPath& path, const Hook* hook) const {
    if (path.beyond_telling()) return !hooks_.empty();
    if (hook != nullptr && !path.doubt().empty()) return true;
    const auto& readings = path.other_readings();
    return std::any_of(readings.begin(), readings.end(), [&](const std::string& reading) {
      const Hook* const other = find(reading);
      return other != nullptr && other != hook;
    });
  }

  Task<void> refuse_path(Exchange& exchange, std::string why) {
    shared_.metrics.no_route().count(to_string(RefusalCode::path_ambiguous), exchange);
    co_await exchange.send_problem(400, why);
  }

  void note(const Exchange& exchange, const Hook& hook, std::string_view result) const {
    AccessNote* const note = exchange.note();
    if (note == nullptr) return;
    note->route = hook.webhook.endpoint.name;
    note->decision = result;
  }

  void count(const Exchange& exchange, const Hook& hook, std::string_view result) {
    metrics_.receipts(hook.webhook.endpoint.name, result).Increment();
    note(exchange, hook, result);
  }

  Task<void> refuse(Exchange& exchange, const Hook& hook, std::string_view result, int status, std::string_view why) {
    count(exchange, hook, result);
    return exchange.send_problem(status, why);
  }

  Task<void> receive(Exchange& exchange, const Hook& hook) {
    const Webhook& webhook = hook.webhook;
    const RequestHead& head = exchange.request();
    if (!co_await within_address_rate(shared_, exchange)) co_return;
    if (head.method != "POST") {
      count(exchange, hook, "method");
      Headers headers;
      headers.add("Allow", "POST");
      co_await exchange.send(405, {}, headers, {});
      co_return;
    }
    const Sharer sharer = sharer_of(shared_, exchange);
    BufferedBytes buffered(shared_, sharer);
    std::string body;
    const BodyRead read =
        co_await exchange.read_body(body, webhook.max_body, [&](std::size_t more) { return buffered.try_hold(more); });
    if (read == BodyRead::refused) {
      constexpr std::string_view kOverloaded = "too many bodies are held in memory; try again in a moment";
      co_return co_await refuse(exchange, hook, "overloaded", 503, kOverloaded);
    }
    if (read == BodyRead::too_large) {
      const std::string why = fmt::format("the body is longer than {} bytes (max_body)", webhook.max_body);
      co_return co_await refuse(exchange, hook, "too_large", 413, why);
    }
    if (read == BodyRead::broken) {
      count(exchange, hook, "broken");
      if (exchange.fault()) co_await exchange.send_problem(exchange.fault().status, exchange.fault().detail);
      co_return;
    }

    const std::string url = url_known_to_sender(*hook.provider, webhook, exchange);
    const WebhookRequest request{head.method, url, head.headers, body};
    const auto tolerance = std::chrono::duration_cast<std::chrono::seconds>(webhook.tolerance);
    const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
    Verification verification = hook.provider->verify(request, hook.keys, tolerance, now);
    if (const auto* refused = std::get_if<Refused>(&verification)) {
      shared_.log.seldom(LogLevel::info, "webhook_refused", webhook.path,
                         {{"webhook", webhook.path},
                          {"fault", to_string(refused->fault)},
                          {"detail", refused->detail},
                          {"peer", exchange.peer()}});
      co_return co_await refuse(exchange, hook, to_string(refused->fault), 400, refused->detail);
    }
    Verified& verified = std::get<Verified>(verification);
    if (verified.challenge) {
      count(exchange, hook, "challenge");
      Headers headers;
      headers.add("Content-Type", "text/plain");
      co_await exchange.send(200, {}, headers, *verified.challenge);
      co_return;
    }
    co_await stage(exchange, hook, std::move(verified), std::move(body));
  }

  Task<void> stage(Exchange& exchange, const Hook& hook, Verified verified, std::string body) {
    const Webhook& webhook = hook.webhook;
    StageRequest job = hook.job;
    const bool by_body = verified.told_by_body && webhook.repetition == Repetition::by_what_is_signed;
    job.id = by_body ? name_of(shared_.hash, "webhook body", webhook.path, body)
                     : name_of(shared_.hash, "webhook", webhook.path, verified.event_id);
    job.key = std::move(verified.event_id);
    if (!webhook.order_by.empty()) {
      const JsonPlace place = find_in_json(body, webhook.order_by);
      if (place.kind == JsonPlace::Kind::string || place.kind == JsonPlace::Kind::number) {
        job.ordered = true;
        job.id = with_order(job.id, name_of(shared_.hash, "order", webhook.path, place.text));
      }
    }
    job.message.headers = headers_to_deliver(exchange, shared_.self);
    job.message.body = std::move(body);
    const std::uint64_t bytes = StoreRoom::kEndingBytes + job.message.body.size();
    if (!shared_.room.for_claim(bytes)) {
      constexpr std::string_view kFull = "the store has no room for the event; send it again later";
      co_return co_await refuse(exchange, hook, "store_full", 503, kFull);
    }
    shared_.room.took(bytes);
    const Result<StageAnswer> answer = co_await await_store<StageAnswer>(
        loop_, [&](auto done) { shared_.store.jobs().stage(std::move(job), std::move(done)); });
    if (!answer) {
      shared_.log.seldom(LogLevel::warning, "webhook_not_staged", webhook.path,
                         {{"webhook", webhook.path}, {"reason", answer.fault().message}});
      constexpr std::string_view kNotStaged = "the event could not be written down; send it again";
      co_return co_await refuse(exchange, hook, "store_fault", 503, kNotStaged);
    }
    const bool duplicate = !answer->staged;
    if (!duplicate) couriers_.poke(webhook.endpoint);
    (duplicate ? hook.duplicates : hook.staged).Increment();
    note(exchange, hook, duplicate ? "duplicate" : "staged");
    co_await exchange.send(200, {}, json_, duplicate ? kDuplicate : kAccepted);
  }

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Couriers& couriers_;
  Loop& loop_;
  Handler& gateway_;
  std::vector<Hook> hooks_;
  Headers json_; // of every acknowledgement
};

} // namespace

Result<std::unique_ptr<Handler>> make_inbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers,
                                            Loop& loop, Handler& gateway) {
  auto inbox = std::make_unique<Inbox>(shared, metrics, couriers, loop, gateway);
  if (const Status opened = inbox->open(); !opened) return opened.fault();
  return std::unique_ptr<Handler>(std::move(inbox));
}

} // namespace oncekey
