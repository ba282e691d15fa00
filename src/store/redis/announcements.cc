#include "store/redis/announcements.h"

#include <fmt/format.h>

#include <utility>

namespace oncekey::redis {
namespace {

constexpr Millis kSubscribeAgainAfter{1000};
constexpr Millis kPingEvery{2000};
// A waiting request looks at its record whenever the listener is called, and that look counts as waiting again.
constexpr Millis kWaiterCounts{5000};

std::int64_t millis_now() { return std::chrono::floor<Millis>(Clock::now().time_since_epoch()).count(); }

} // namespace

Announcements::Announcements(Loop& loop, Servers& servers, const ConnectionOptions& options, const RedisUrl& url,
                             const KeyNames& names, Millis call_timeout)
    : loop_(loop),
      servers_(servers),
      options_(options),
      url_(url),
      names_(names),
      call_timeout_(call_timeout),
      first_attempt_(loop),
      closed_(loop) {}

void Announcements::tell(Store::Listener listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::make_shared<const Store::Listener>(std::move(listener));
}

void Announcements::note_waiter() {
  waiting_until_.store(millis_now() + kWaiterCounts.count(), std::memory_order_relaxed);
}

void Announcements::say(const std::optional<RecordId>& settled) {
  std::shared_ptr<const Store::Listener> listener;
  {
    const std::lock_guard lock(mutex_);
    listener = listener_;
  }
  if (listener && *listener) (*listener)(settled);
}

void Announcements::say_any_may_be_settled() {
  if (waiting_until_.load(std::memory_order_relaxed) >= millis_now()) say(std::nullopt);
}

Task<void> Announcements::run() {
  while (!stopped_) {
    connection_ = std::make_shared<RedisConnection>(loop_, servers_.any_host(), options_);
    const auto connection = connection_;
    Status status = co_await connection->open(Clock::now() + call_timeout_);
    if (status && !stopped_) status = co_await listen(connection);
    first_attempt_.give();
    say_any_may_be_settled(); // while there was no subscription
    if (status) co_await stay(connection);
    connection->close("the store is closed");
    if (stopped_) break;
    co_await sleep_for(loop_, kSubscribeAgainAfter);
  }
}

Task<void> Announcements::until_first_attempt(MonotonicTime deadline) { co_await first_attempt_.wait_until(deadline); }

Task<Status> Announcements::listen(std::shared_ptr<RedisConnection> connection) {
  connection->on_message([this](RedisReply message) {
    if (const std::optional<RecordId> id = record_id_from_hex(message[2].text())) say(*id);
  });
  std::string subscribe = command({"SUBSCRIBE", names_.channel()});
  const Result<OwnedReply> reply = co_await connection->ask(std::move(subscribe), Clock::now() + call_timeout_);
  if (!reply) co_return reply.fault();
  if (reply->look()[0].text() != "subscribe") co_return unavailable(std::string(reply->look().text()));
  co_return ok_status();
}

Task<void> Announcements::stay(std::shared_ptr<RedisConnection> connection) {
  connection->on_closed([this] { closed_.give(); });
  while (!stopped_ && connection->is_open()) {
    // A connection that died silently is noticed by a PING without an answer.
    std::string ping = command({"PING"});
    const Result<OwnedReply> alive = co_await connection->ask(std::move(ping), Clock::now() + call_timeout_);
    if (!alive || stopped_) break;
    if (url_.cluster) say_any_may_be_settled();
    co_await closed_.wait_until(Clock::now() + kPingEvery);
  }
}

void Announcements::stop() {
  stopped_ = true;
  if (connection_) connection_->close("the store is closed");
}

} // namespace oncekey::redis
