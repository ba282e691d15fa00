#include "delivery/outbox.h"

#include "core/key.h"
#include "http/local_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace oncekey {
namespace {

constexpr std::uint64_t kMessageBytesMax = 4u << 20;
constexpr std::array<std::string_view, 4> kMethods{"POST", "PUT", "PATCH", "DELETE"};

// Why a request is not let in, if it is not.
std::optional<std::string> refused_at_the_door(const RequestHead& head, const std::string& token) {
  if (!token.empty()) {
    const std::string_view given = head.headers.get("Authorization").value_or("");
    if (starts_with_ignoring_case(given, "Bearer ") && equal_in_constant_time(given.substr(7), token)) return {};
    return "send the outbox token: Authorization: Bearer TOKEN";
  }
  if (names_this_machine(head.headers.get("Host").value_or("localhost"))) return {};
  return "without a token this listener answers to loopback host names only";
}

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

bool visible(std::string_view text) {
  return !text.empty() && text.size() <= 255 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

} // namespace

Outbox::Outbox(GatewayShared& shared, DeliveryMetrics& metrics, Deliverer& deliverer, asio::io_context& context)
    : shared_(shared), metrics_(metrics), deliverer_(deliverer), wakeups_(context) {}

Task<void> Outbox::handle(Exchange& exchange) {
  const RequestHead& head = exchange.request();
  const std::string& token = shared_.config.outbox_token;
  if (const auto refused = refused_at_the_door(head, token)) {
    co_await exchange.send_problem(token.empty() ? 403 : 401, *refused);
    co_return;
  }
  if (head.path() != "/outbox" || head.method != "POST") {
    co_await exchange.send_problem(404, "there is POST /outbox here, and nothing else");
    co_return;
  }
  const auto key = head.headers.get("Idempotency-Key");
  if (!key || !visible(*key)) {
    co_await exchange.send_problem(400,
                                   "send an Idempotency-Key of 1 to 255 visible characters: it names the message, so "
                                   "that a repetition is known for one");
    co_return;
  }
  const std::string_view wanted = head.headers.get("Oncekey-Destination").value_or("");
  const Endpoint* endpoint = nullptr;
  for (const Endpoint& known : shared_.config.destinations) {
    if (known.name.substr(known.name.find(' ') + 1) == wanted) endpoint = &known;
  }
  if (endpoint == nullptr) {
    co_await exchange.send_problem(
        400, "Oncekey-Destination must name a [[destination]] of the configuration; URLs are not taken from requests");
    co_return;
  }
  const std::string_view method = head.headers.get("Oncekey-Method").value_or("POST");
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end()) {
    co_await exchange.send_problem(400, "Oncekey-Method is one of POST, PUT, PATCH and DELETE");
    co_return;
  }
  co_await stage(exchange, *endpoint, std::string(*key), std::string(method));
}

Task<void> Outbox::stage(Exchange& exchange, const Endpoint& endpoint, std::string key, std::string method) {
  BufferedBytes buffered(shared_);
  Claimable message;
  StoredResponse& content = message.message;
  const BodyRead read = co_await exchange.read_body(content.body, kMessageBytesMax,
                                                    [&](std::size_t more) { return buffered.try_hold(more); });
  if (read != BodyRead::whole) {
    const int status = read == BodyRead::too_large ? 413 : read == BodyRead::refused ? 503 : 400;
    metrics_.count_receipt(endpoint.name, read == BodyRead::refused ? "overloaded" : "unread");
    co_await exchange.send_problem(status, "the message was not read whole; it may have up to 4 MiB");
    co_return;
  }
  const Headers& headers = exchange.request().headers;
  content.headers = content_fields(headers);
  const std::array<std::string_view, 3> name{"outbox", endpoint.name, key};
  message.id = RecordId{shared_.hash.of(name)};
  if (const auto order = headers.get("Oncekey-Order")) {
    const std::array<std::string_view, 3> queue{"order", endpoint.name, *order};
    message.ordered = true;
    message.id = with_order(message.id, RecordId{shared_.hash.of(queue)});
  }
  const std::array<std::string_view, 3> whole{method, content.headers.lines(), content.body};
  message.fingerprint = Fingerprint{shared_.hash.of(whole)};
  message.key = std::move(key);
  message.method = std::move(method);
  const Fingerprint fingerprint = message.fingerprint;
  const std::string id = to_hex(message.id);
  ClaimRequest claim = staging_claim(endpoint, std::move(message));
  const Result<ClaimAnswer> answer = co_await await_store<ClaimAnswer>(
      wakeups_, [&](auto done) { shared_.store.claim(std::move(claim), std::move(done)); });
  if (!answer) {
    metrics_.count_receipt(endpoint.name, "store_fault");
    co_await exchange.send_problem(503, "the message could not be written down; send it again with the same key");
    co_return;
  }
  const Found* const found = std::get_if<Found>(&*answer);
  if (found != nullptr && found->record.fingerprint != fingerprint) {
    metrics_.count_receipt(endpoint.name, "mismatch");
    co_await exchange.send_problem(422, "this Idempotency-Key was used for another message to this destination");
    co_return;
  }
  if (found == nullptr) deliverer_.poke();
  metrics_.count_receipt(endpoint.name, found != nullptr ? "duplicate" : "staged");
  Headers out;
  out.add("Content-Type", "application/json");
  const std::string body = fmt::format(R"({{"id":"{}","duplicate":{}}})", id, found != nullptr);
  co_await exchange.send(found != nullptr ? 200 : 202, {}, out, body);
}

} // namespace oncekey
