#include "store/redis/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey::redis {
namespace {

// Ten times what a healthy server takes on a bad day.
constexpr Millis kPatience{250};
// An overdue answer closes the connection, which the records need too: so this is longer than kPatience.
constexpr Millis kOverdue{5000};

// KEYS: the bucket. ARGV: tokens per millisecond, the most it holds, how many are taken (-1 puts one back).
// Answers {allowed, whole tokens left, milliseconds to the next one, milliseconds until it is full}.
constexpr std::string_view kTakeScript = R"lua(
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if kept[1] and kept[2] then
  tokens = math.min(burst, tonumber(kept[1]) + math.max(0, now - tonumber(kept[2])) * rate)
end
local allowed = tokens >= wanted
if allowed then
  tokens = math.min(burst, tokens - wanted)
  redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', now))
  redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) / rate) + 1)
end
return {allowed and 1 or 0, math.floor(tokens), math.ceil(math.max(0, wanted - tokens) / rate),
        math.ceil((burst - tokens) / rate)}
)lua";

Result<Taken> taken_in(RedisReply reply) {
  if (reply.is_error()) return unavailable(std::string(reply.text()));
  const auto number = [&](std::size_t at) { return std::max<std::int64_t>(0, reply[at].integer().value_or(0)); };
  if (reply.size() != 4 || !reply[0].is_integer()) return unavailable("Redis gave an answer of an unexpected shape");
  return Taken{number(0) == 1, static_cast<std::uint32_t>(number(1)), Millis(number(2)), Millis(number(3))};
}

struct RateQuestion {
  RateQuestion(Loop& loop, std::function<void(Result<Taken>)> told)
      : done(std::move(told)), late(loop, [this] { answer(unavailable("Redis did not answer in time")); }) {}
  // The first answer counts; the reply and the timer may both come.
  void answer(Result<Taken> taken) {
    late.clear();
    if (const auto told = std::exchange(done, nullptr)) told(std::move(taken));
  }
  std::function<void(Result<Taken>)> done;
  Timer late;
};

class Rates final : public RateKeeper {
 public:
  explicit Rates(Servers& servers) : servers_(servers), state_(servers.store()) {}

  void take(const RateBucketId& bucket, const Rate& rate, std::function<void(Result<Taken>)> done) override {
    ask(bucket, rate, "1", std::move(done));
  }
  void give_back(const RateBucketId& bucket, const Rate& rate) override { ask(bucket, rate, "-1", nullptr); }

 private:
  void ask(const RateBucketId& bucket, const Rate& rate, std::string_view tokens,
           std::function<void(Result<Taken>)> done) {
    std::string run = command({"EVAL", kTakeScript, "1", state_.names.bucket(bucket),
                               fmt::format("{}", rate.per_second / 1000), fmt::format("{}", rate.burst), tokens});
    state_.loop.post(
        [this, partition = state_.names.partition_of(bucket), run = std::move(run), done = std::move(done)]() mutable {
          const auto question = std::make_shared<RateQuestion>(state_.loop, std::move(done));
          const Result<std::shared_ptr<RedisConnection>> connection = servers_.connection_to(partition);
          if (!connection) return question->answer(connection.fault());
          if (question->done) question->late.after(kPatience);
          (*connection)->send(run, Clock::now() + kOverdue, [this, question](const Result<OwnedReply>& reply) {
            // A slot that has moved is looked for again; this request passes uncounted.
            if (reply && reply->look().is_error()) servers_.refresh_soon();
            question->answer(reply ? taken_in(reply->look()) : reply.fault());
          });
        });
  }

  Servers& servers_;
  StoreState& state_;
};

} // namespace

std::unique_ptr<RateKeeper> redis_rates(Servers& servers) { return std::make_unique<Rates>(servers); }

} // namespace oncekey::redis
