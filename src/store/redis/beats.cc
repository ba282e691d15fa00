#include "store/redis/beats.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace oncekey::redis {
namespace {

// KEYS: the gateways. ARGV: an instance, its value, the time from which on silent ones are kept, milliseconds for the
// whole hash to live. Answers all fields and values.
constexpr std::string_view kBeatScript = R"lua(
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
local all, kept = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local seen = tonumber(string.match(all[i + 1], '^%d+'))
  if not seen or seen < tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[1], all[i])
  else
    kept[#kept + 1], kept[#kept + 2] = all[i], all[i + 1]
  end
end
return kept
)lua";

// "SEEN STARTED STATE VERSION NAME"; none of the words holds a space.
std::string value_of(const GatewayBeat& beat) {
  return fmt::format("{} {} {} {} {}", beat.seen.time_since_epoch().count(), beat.started.time_since_epoch().count(),
                     beat.state, beat.version, beat.name);
}

std::string_view next_word(std::string_view& rest) {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  return word;
}

Time time_of(std::string_view word) {
  std::int64_t millis = 0;
  std::from_chars(word.data(), word.data() + word.size(), millis);
  return Time{Millis{millis}};
}

GatewayBeat beat_of(std::string_view instance, std::string_view value) {
  GatewayBeat beat;
  beat.instance = instance;
  beat.seen = time_of(next_word(value));
  beat.started = time_of(next_word(value));
  beat.state = next_word(value);
  beat.version = next_word(value);
  beat.name = value;
  return beat;
}

} // namespace

Task<Result<std::vector<GatewayBeat>>> beat(Servers& servers, GatewayBeat mine) {
  StoreState& store = servers.store();
  const Result<std::shared_ptr<RedisConnection>> connection = servers.connection_to(0);
  if (!connection) co_return connection.fault();
  mine.seen = store.now();
  const std::string kept_from = std::to_string((mine.seen - kGatewayForgottenAfter).time_since_epoch().count());
  const Result<OwnedReply> reply =
      co_await (*connection)
          ->get(store.deadline(), "EVAL", kBeatScript, "1", store.names.gateways(), mine.instance, value_of(mine),
                kept_from, std::to_string(kGatewayForgottenAfter.count()));
  if (!reply) co_return reply.fault();
  std::vector<GatewayBeat> beats;
  const RedisReply all = reply->look();
  for (std::size_t at = 0; at + 1 < all.size(); at += 2) beats.push_back(beat_of(all[at].text(), all[at + 1].text()));
  std::sort(beats.begin(), beats.end(), [](const GatewayBeat& a, const GatewayBeat& b) {
    return a.name != b.name ? a.name < b.name : a.started < b.started;
  });
  co_return beats;
}

} // namespace oncekey::redis
