#include "store/redis/link.h"

#include <utility>

namespace oncekey::redis {
namespace {

// A server that restarts is back within some tens of milliseconds; one that is gone must not be hammered.
constexpr Millis kFirstReconnectPause{10};
constexpr Millis kLongestReconnectPause{2000};

} // namespace

Link::Link(Loop& loop, Host host, std::uint8_t number, const ConnectionOptions& options, Millis connect_timeout,
           LinkOwner& owner)
    : loop_(loop),
      host_(std::move(host)),
      number_(number),
      options_(options),
      connect_timeout_(connect_timeout),
      owner_(&owner),
      pauses_(kFirstReconnectPause, kLongestReconnectPause),
      wake_(loop) {}

void Link::start() { spawn(keep()); }

void Link::stop() {
  owner_ = nullptr;
  ready_ = false;
  why_not_ = unavailable("it is no longer used");
  if (connection_) connection_->close("it is no longer used");
  wake_.give();
}

Fault Link::why_not() const {
  return why_not_ ? *why_not_ : unavailable("Redis at " + to_string(host_) + " is being connected");
}

Task<void> Link::keep() {
  const auto self = shared_from_this(); // the task may outlive the last other pointer
  co_await loop_.next_turn();           // start() is called in the middle of other things
  while (owner_ != nullptr) {
    const Status status = co_await attempt();
    if (owner_ == nullptr) break;
    if (status) {
      pauses_.reset();
      ready_ = true;
      why_not_.reset();
      owner_->link_ready(host_);
      // No longer ready at the very moment it closes: a call made in between must not be sent into the void.
      connection_->on_closed([self] {
        self->ready_ = false;
        self->wake_.give();
      });
      co_await wake_.wait();
      ready_ = false;
      why_not_ =
          unavailable("the connection to Redis at " + to_string(host_) + " was lost: " + connection_->why_closed());
      if (owner_ != nullptr) owner_->link_lost(host_, connection_->why_closed());
    } else {
      why_not_ = status.fault();
    }
    if (owner_ == nullptr) break;
    co_await wake_.wait_until(Clock::now() + pauses_.next());
  }
}

Task<Status> Link::attempt() {
  connection_ = std::make_shared<RedisConnection>(loop_, host_, options_);
  const auto connection = connection_;
  Status status = co_await connection->open(Clock::now() + connect_timeout_);
  if (status && owner_ != nullptr) status = co_await owner_->prepare(connection);
  if (status && !connection->is_open()) status = unavailable(connection->why_closed());
  if (!status) connection->close(status.fault().message);
  co_return status;
}

} // namespace oncekey::redis
