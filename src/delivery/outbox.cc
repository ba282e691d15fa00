#include "delivery/outbox.h"

#include "core/key.h"
#include "delivery/staging.h"
#include "http/door.h"
#include "signatures/signing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

constexpr std::array<std::string_view, 4> kMethods{"POST", "PUT", "PATCH", "DELETE"};

// What belongs to the message itself.
Headers content_fields(const Headers& headers) {
  Headers content;
  for (std::size_t at = 0; at < headers.size(); ++at) {
    const Field field = headers[at];
    if (starts_with_ignoring_case(field.name, "Content-") && !equal_ignoring_case(field.name, "Content-Length")) {
      content.add(field.name, field.value);
    }
  }
  return content;
}

// The key that names the message, as the gateway reads one; nothing if there is none, or more than one.
std::optional<std::string> key_of(const Headers& headers) {
  const auto header = only_header(headers, "Idempotency-Key");
  if (!std::holds_alternative<std::string_view>(header)) return std::nullopt;
  ParsedKey key = parse_key_header(KeySyntax::visible_ascii, /*strict=*/false, std::get<std::string_view>(header));
  if (!std::holds_alternative<std::string>(key)) return std::nullopt;
  return std::get<std::string>(std::move(key));
}

class Outbox final : public Handler {
 public:
  Outbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers, Loop& loop)
      : shared_(shared), metrics_(metrics), couriers_(couriers), loop_(loop) {}

  Task<void> handle(Exchange& exchange) override {
    const RequestHead& head = exchange.request();
    if (const auto refused = turned_away(head.headers, shared_.config().outbox_token, "outbox")) {
      co_return co_await exchange.send_problem(refused->status, refused->why);
    }
    if (head.path() != "/outbox" || head.method != "POST") {
      co_return co_await exchange.send_problem(404, "Not found. Available: POST /outbox", "not_found");
    }
    std::optional<std::string> key = key_of(head.headers);
    if (!key) {
      co_return co_await exchange.send_problem(400,
                                               "send one Idempotency-Key of 1 to 255 visible characters: it names the "
                                               "message, so that a repetition is known "
                                               "for one",
                                               "key_invalid");
    }
    const std::string_view wanted = head.headers.get("Oncekey-Destination").value_or("");
    const Endpoint* endpoint = nullptr;
    for (const Endpoint& known : shared_.config().destinations) {
      if (known.name.substr(known.name.find(' ') + 1) == wanted) endpoint = &known;
    }
    if (endpoint == nullptr) {
      co_return co_await exchange.send_problem(
          400, "Oncekey-Destination must name a [[destination]] of the configuration; URLs are not taken from requests",
          "destination_unknown");
    }
    const std::string_view method = head.headers.get("Oncekey-Method").value_or("POST");
    if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end()) {
      co_return co_await exchange.send_problem(400, "Oncekey-Method must be POST, PUT, PATCH or DELETE",
                                               "method_invalid");
    }
    co_await stage(exchange, *endpoint, *std::move(key), std::string(method));
  }

 private:
  Task<void> stage(Exchange& exchange, const Endpoint& endpoint, std::string key, std::string method) {
    const Sharer sharer(exchange.address());
    BufferedBytes buffered(shared_, sharer);
    // Counts what became of the message, before it is said.
    const auto count = [&](std::string_view outcome) { metrics_.receipts(endpoint.name, outcome).Increment(); };
    StageRequest job = job_for(endpoint);
    Message& content = job.message;
    const BodyRead read = co_await exchange.read_body(content.body, kMessageBytesMax,
                                                      [&](std::size_t more) { return buffered.try_hold(more); });
    if (read != BodyRead::whole) {
      const int status = read == BodyRead::too_large ? 413 : read == BodyRead::refused ? 503 : 400;
      count(read == BodyRead::refused ? "overloaded" : "unread");
      co_return co_await exchange.send_problem(status, "the message was not read whole; it may have up to 4 MiB");
    }
    const Headers& headers = exchange.request().headers;
    content.headers = content_fields(headers);
    job.id = name_of(shared_.hash, "outbox", endpoint.name, key);
    if (const auto order = headers.get("Oncekey-Order")) {
      job.ordered = true;
      job.id = with_order(job.id, name_of(shared_.hash, "order", endpoint.name, *order));
    }
    const std::array<std::string_view, 3> whole{method, content.headers.lines(), content.body};
    job.fingerprint = Fingerprint{shared_.hash.of(whole)};
    job.key = std::move(key);
    content.method = std::move(method);
    const Fingerprint fingerprint = job.fingerprint;
    const std::string id = to_hex(job.id);
    const std::uint64_t bytes = StoreRoom::kEndingBytes + content.body.size();
    if (!shared_.room.for_claim(bytes)) {
      count("store_full");
      co_return co_await exchange.send_problem(
          503, "the store has no room for the message; send it again later, with the same key");
    }
    shared_.room.took(bytes);
    const Result<StageAnswer> answer = co_await await_store<StageAnswer>(
        loop_, [&](auto done) { shared_.store.jobs().stage(std::move(job), std::move(done)); });
    if (!answer) {
      count("store_fault");
      co_return co_await exchange.send_problem(
          503, "the message could not be written down; send it again with the same key");
    }
    if (answer->fingerprint != fingerprint) {
      count("mismatch");
      co_return co_await exchange.send_problem(422,
                                               "this Idempotency-Key was used for another message to this destination",
                                               to_string(RefusalCode::mismatch));
    }
    if (answer->staged) couriers_.poke(endpoint);
    count(answer->staged ? "staged" : "duplicate");
    Headers out;
    out.add("Content-Type", "application/json");
    const std::string body = fmt::format(R"({{"id":"{}","duplicate":{}}})", id, !answer->staged);
    co_await exchange.send(answer->staged ? 202 : 200, {}, out, body);
  }

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Couriers& couriers_;
  Loop& loop_;
};

} // namespace

std::unique_ptr<Handler> make_outbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers, Loop& loop) {
  return std::make_unique<Outbox>(shared, metrics, couriers, loop);
}

} // namespace oncekey
