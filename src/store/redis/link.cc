#include "store/redis/link.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <utility>

namespace oncekey::redis {
namespace {

// A server that restarts is back within some tens of milliseconds; one that is gone must not be hammered.
constexpr Millis kFirstReconnectPause{20};
constexpr Millis kLongestReconnectPause{2000};

} // namespace

Link::Link(asio::io_context& context, Host host, std::uint8_t number, const ConnectionOptions& options,
           Millis connect_timeout, LinkOwner& owner)
    : context_(context),
      host_(std::move(host)),
      number_(number),
      options_(options),
      connect_timeout_(connect_timeout),
      owner_(&owner),
      pauses_(kFirstReconnectPause, kLongestReconnectPause),
      wake_(context) {}

void Link::start() {
  asio::co_spawn(
      context_, [self = shared_from_this()]() -> Task<void> { return self->keep(); }, asio::detached);
}

void Link::stop() {
  owner_ = nullptr;
  ready_ = false;
  why_not_ = unavailable("it is no longer used");
  if (connection_) connection_->close("it is no longer used");
  wake_.cancel();
}

Fault Link::why_not() const {
  return why_not_ ? *why_not_ : unavailable("Redis at " + to_string(host_) + " is being connected");
}

Task<void> Link::keep() {
  const auto self = shared_from_this(); // the coroutine outlives whoever started it
  while (owner_ != nullptr) {
    const Status status = co_await attempt();
    if (owner_ == nullptr) break;
    if (status) {
      pauses_.reset();
      ready_ = true;
      why_not_.reset();
      owner_->link_ready(host_);
      co_await until_closed();
      ready_ = false;
      why_not_ =
          unavailable("the connection to Redis at " + to_string(host_) + " was lost: " + connection_->why_closed());
      if (owner_ != nullptr) owner_->link_lost(host_, connection_->why_closed());
    } else {
      why_not_ = status.fault();
    }
    if (owner_ == nullptr) break;
    wake_.expires_after(pauses_.next());
    co_await wake_.async_wait(use_task);
  }
}

Task<Status> Link::attempt() {
  connection_ = std::make_shared<Connection>(context_, host_, options_);
  const auto connection = connection_;
  Status status = co_await connection->open(Clock::now() + connect_timeout_);
  if (status && owner_ != nullptr) status = co_await owner_->prepare(connection);
  if (status && !connection->is_open()) status = unavailable(connection->why_closed());
  if (!status) connection->close(status.fault().message);
  co_return status;
}

Task<void> Link::until_closed() {
  // No longer ready at the very moment it closes: a call made in between must not be sent into the void.
  const auto arrival = std::make_shared<Arrival<bool>>(context_);
  connection_->on_closed([self = shared_from_this(), arrival] {
    self->ready_ = false;
    arrival->set(true);
  });
  co_await arrival->wait_until(Deadline::max());
}

} // namespace oncekey::redis
