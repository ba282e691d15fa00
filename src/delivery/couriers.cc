#include "delivery/couriers.h"

#include "delivery/staging.h"

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// How often to look for jobs that other gateways have staged or left behind, and for pauses that are over.
constexpr Millis kPollEvery{250};

} // namespace

Couriers::Line::Line(Couriers& couriers, const Endpoint& place, std::unique_ptr<HttpCarrier> http,
                     std::uint64_t longest_message, std::uint64_t share)
    : all(couriers),
      endpoint(place),
      carrier(std::move(http)),
      source(all.shared_, all.metrics_, all.loop_, place, longest_message, share),
      courier(source, *carrier, place.concurrency, [this] { look_soon(); }) {}

void Couriers::Line::look() {
  poked = false;
  courier.look();
  full = courier.room() == 0; // the end of an attempt looks by itself
}

void Couriers::Line::look_soon() {
  if (!poked.exchange(true)) all.loop_.post([this] { look(); });
}

Couriers::Couriers(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop)
    : shared_(shared), metrics_(metrics), loop_(loop), poll_(loop, [this] {
        poll_.after(kPollEvery);
        for (const auto& line : lines_) line->look();
      }) {}

Result<std::unique_ptr<Couriers>> Couriers::make(GatewayShared& shared, DeliveryMetrics& metrics, Loop& loop) {
  std::unique_ptr<Couriers> made(new Couriers(shared, metrics, loop));
  const Config& config = shared.config();
  // Messages are held in memory like the bodies of requests, and must leave these half of it.
  const std::size_t endpoints = config.webhooks.size() + config.destinations.size();
  const std::uint64_t share = config.limits.max_buffered_bytes / 2 / std::max<std::size_t>(1, endpoints);
  for (const Webhook& webhook : config.webhooks) {
    if (const Status added = made->add(webhook.endpoint, webhook.max_body, share); !added) return added.fault();
  }
  for (const Endpoint& destination : config.destinations) {
    if (const Status added = made->add(destination, kMessageBytesMax, share); !added) return added.fault();
  }
  return made;
}

Status Couriers::add(const Endpoint& endpoint, std::uint64_t longest_message, std::uint64_t share) {
  auto carrier = HttpCarrier::make(endpoint, shared_.config(), loop_, metrics_);
  if (!carrier) return std::move(carrier).fault();
  lines_.push_back(std::make_unique<Line>(*this, endpoint, std::move(carrier).value(), longest_message, share));
  return ok_status();
}

void Couriers::start() {
  poll_.after(kPollEvery);
  for (const auto& line : lines_) line->look();
}

void Couriers::stop() {
  poll_.clear();
  for (const auto& line : lines_) {
    line->courier.stop();
    line->carrier->close_idle();
  }
}

void Couriers::poke(const Endpoint& endpoint) {
  for (const auto& line : lines_) {
    if (line->endpoint.name == endpoint.name && !line->full) line->look_soon();
  }
}

bool Couriers::over() const {
  return std::all_of(lines_.begin(), lines_.end(), [](const auto& line) { return line->courier.over(); });
}

} // namespace oncekey
