#include "store/redis/announcements.h"

namespace oncekey::redis {
namespace {

constexpr Millis kSubscribeAgainAfter{1000};
constexpr Millis kPingEvery{2000};
// A waiting request looks at its record whenever the listener is called, and that look counts as waiting again.
constexpr Millis kWaiterCounts{5000};

} // namespace

void Announcements::tell(Store::Listener listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

void Announcements::note_waiter() { waiting_until_.store(Clock::now() + kWaiterCounts, std::memory_order_relaxed); }

void Announcements::say(const std::optional<RecordId>& settled) {
  Store::Listener listener;
  {
    const std::lock_guard lock(mutex_);
    listener = listener_;
  }
  if (listener) listener(settled);
}

void Announcements::say_any_may_be_settled() {
  if (waiting_until_.load(std::memory_order_relaxed) >= Clock::now()) say(std::nullopt);
}

Task<void> Announcements::run() {
  while (!stopped_) {
    connection_ = std::make_shared<RedisConnection>(state_.loop, servers_.any_host(), state_.connections);
    const auto connection = connection_;
    connection->on_message([this](RedisReply message) {
      if (const std::optional<RecordId> id = record_id_from_hex(message[2].text())) say(*id);
    });
    bool subscribed = false;
    const Status opened = co_await connection->open(state_.deadline());
    if (opened && !stopped_) {
      const Result<OwnedReply> reply = co_await connection->ask(state_.deadline(), "SUBSCRIBE", state_.names.channel());
      subscribed = reply && reply->look()[0].text() == "subscribe";
    }
    first_attempt_.give();
    say_any_may_be_settled(); // while there was no subscription
    if (subscribed) co_await stay(connection);
    connection->close("the store is closed");
    if (stopped_) break;
    co_await sleep_for(state_.loop, kSubscribeAgainAfter);
  }
}

Task<void> Announcements::stay(std::shared_ptr<RedisConnection> connection) {
  connection->on_closed([this] { closed_.give(); });
  while (!stopped_ && connection->is_open()) {
    // A connection that died silently is noticed by a PING without an answer.
    const Result<OwnedReply> alive = co_await connection->ask(state_.deadline(), "PING");
    if (!alive || stopped_) break;
    if (state_.url.cluster) say_any_may_be_settled();
    co_await closed_.wait_until(Clock::now() + kPingEvery);
  }
}

void Announcements::stop() {
  stopped_ = true;
  if (connection_) connection_->close("the store is closed");
}

} // namespace oncekey::redis
