#include "delivery/inbox.h"

#include "config/config.h"
#include "core/json_pointer.h"
#include "core/refusal.h"
#include "delivery/staging.h"
#include "http/forwarding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kAccepted = R"({"received":true,"duplicate":false})";
constexpr std::string_view kDuplicate = R"({"received":true,"duplicate":true})";

// The URL as the sender knows it, which is what some of them sign.
std::string url_known_to_sender(const Webhook& webhook, const Exchange& exchange) {
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
  const UpstreamRequest onward =
      forward(exchange.request(), {exchange.peer(), exchange.secure()}, self, {"Host", "Idempotency-Key"});
  Headers headers;
  for (std::size_t at = 0; at < onward.headers.size(); ++at) {
    const Field field = onward.headers[at];
    if (!equal_ignoring_case(field.name, "Via")) headers.add(field.name, field.value);
  }
  // Some senders sign it and put what they mean into it; the URL of the delivery is the receiver's own.
  const std::string& target = exchange.request().target;
  if (const std::size_t question = target.find('?'); question != std::string::npos)
    headers.add("Oncekey-Query", target.substr(question + 1));
  return headers;
}

} // namespace

struct Inbox::Hook {
  const Webhook& webhook;
  std::shared_ptr<const WebhookProvider> provider;
  prometheus::Counter& staged;
  prometheus::Counter& duplicates;
};

Inbox::Inbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers, Loop& context)
    : shared_(shared), metrics_(metrics), couriers_(couriers), loop_(context) {}
Inbox::~Inbox() = default;

Result<std::unique_ptr<Inbox>> Inbox::make(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers,
                                           Loop& context) {
  std::unique_ptr<Inbox> inbox(new Inbox(shared, metrics, couriers, context));
  for (const Webhook& webhook : shared.config().webhooks) {
    const std::string& name = webhook.endpoint.name;
    auto provider = provider_of(webhook);
    if (!provider) return std::move(provider).fault();
    inbox->hooks_.push_back(std::make_unique<Hook>(Hook{
        webhook, std::move(provider).value(), metrics.receipts(name, "staged"), metrics.receipts(name, "duplicate")}));
  }
  return inbox;
}

const Inbox::Hook* Inbox::find(std::string_view path) const {
  for (const auto& hook : hooks_) {
    const bool same = shared_.config().path_case == PathCase::ignore ? equal_ignoring_case(hook->webhook.path, path)
                                                                     : hook->webhook.path == path;
    if (same) return hook.get();
  }
  return nullptr;
}

bool Inbox::ambiguous(const NormalPath& path, const Hook* hook) const {
  if (path.beyond_telling()) return !hooks_.empty();
  if (hook != nullptr && !path.doubt().empty()) return true;
  const auto& readings = path.other_readings();
  return std::any_of(readings.begin(), readings.end(), [&](const std::string& reading) {
    const Hook* const other = find(reading);
    return other != nullptr && other != hook;
  });
}

Task<void> Inbox::refuse_path(Exchange& exchange, std::string why) {
  shared_.metrics.no_route().count(to_string(RefusalCode::path_ambiguous), exchange);
  co_await exchange.send_problem(400, why);
}

void Inbox::note(const Exchange& exchange, const Hook& hook, std::string_view result) const {
  AccessNote* const note = exchange.note();
  if (note == nullptr) return;
  note->route = hook.webhook.endpoint.name;
  note->decision = result;
}

void Inbox::count(const Exchange& exchange, const Hook& hook, std::string_view result) {
  metrics_.receipts(hook.webhook.endpoint.name, result).Increment();
  note(exchange, hook, result);
}

Task<void> Inbox::receive(Exchange& exchange, const Hook& hook) {
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
    count(exchange, hook, "overloaded");
    co_await exchange.send_problem(503, "too many bodies are held in memory; try again in a moment");
    co_return;
  }
  if (read == BodyRead::too_large) {
    count(exchange, hook, "too_large");
    co_await exchange.send_problem(413, fmt::format("the body is longer than {} bytes (max_body)", webhook.max_body));
    co_return;
  }
  if (read == BodyRead::broken) {
    count(exchange, hook, "broken");
    if (exchange.fault()) co_await exchange.send_problem(exchange.fault().status, exchange.fault().detail);
    co_return;
  }

  const std::string url = url_known_to_sender(webhook, exchange);
  const WebhookRequest request{head.method, url, head.headers, body};
  const auto tolerance = std::chrono::duration_cast<std::chrono::seconds>(webhook.tolerance);
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  const Verification verification = hook.provider->verify(request, webhook.secrets, tolerance, now);
  if (const auto* refused = std::get_if<Refused>(&verification)) {
    count(exchange, hook, to_string(refused->fault));
    shared_.log.seldom(LogLevel::info, "webhook_refused", webhook.path,
                       {{"webhook", webhook.path},
                        {"fault", to_string(refused->fault)},
                        {"detail", refused->detail},
                        {"peer", exchange.peer()}});
    co_await exchange.send_problem(400, refused->detail);
    co_return;
  }
  const Verified& verified = std::get<Verified>(verification);
  if (verified.challenge) {
    count(exchange, hook, "challenge");
    Headers headers;
    headers.add("Content-Type", "text/plain");
    co_await exchange.send(200, {}, headers, *verified.challenge);
    co_return;
  }
  co_await stage(exchange, hook, verified, std::move(body));
}

Task<void> Inbox::stage(Exchange& exchange, const Hook& hook, const Verified& verified, std::string body) {
  const Webhook& webhook = hook.webhook;
  StageRequest job = job_for(webhook.endpoint);
  const bool by_body = verified.told_by_body && webhook.repetition == Repetition::by_what_is_signed;
  job.id = by_body ? name_of(shared_.hash, "webhook body", webhook.path, body)
                   : name_of(shared_.hash, "webhook", webhook.path, verified.event_id);
  job.key = verified.event_id;
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
    count(exchange, hook, "store_full");
    co_await exchange.send_problem(503, "the store has no room for the event; send it again later");
    co_return;
  }
  shared_.room.took(bytes);
  const Result<StageAnswer> answer = co_await await_store<StageAnswer>(
      loop_, [&](auto done) { shared_.store.jobs().stage(std::move(job), std::move(done)); });
  if (!answer) {
    count(exchange, hook, "store_fault");
    shared_.log.seldom(LogLevel::warning, "webhook_not_staged", webhook.path,
                       {{"webhook", webhook.path}, {"reason", answer.fault().message}});
    co_await exchange.send_problem(503, "the event could not be written down; send it again");
    co_return;
  }
  const bool duplicate = !answer->staged;
  if (!duplicate) couriers_.poke(webhook.endpoint);
  (duplicate ? hook.duplicates : hook.staged).Increment();
  note(exchange, hook, duplicate ? "duplicate" : "staged");
  Headers headers;
  headers.add("Content-Type", "application/json");
  co_await exchange.send(200, {}, headers, duplicate ? kDuplicate : kAccepted);
}

Task<void> FrontDoor::handle(Exchange& exchange) {
  if (inbox_.empty()) return gateway_.handle(exchange);
  const NormalPath path(exchange.request().path());
  const Inbox::Hook* const hook = inbox_.find(path.text());
  if (inbox_.ambiguous(path, hook)) return inbox_.refuse_path(exchange, path.why_ambiguous());
  if (hook == nullptr) return gateway_.handle(exchange);
  return inbox_.receive(exchange, *hook);
}

} // namespace oncekey
