#include "store/redis/meta.h"

#include "store/common/secret_check.h"

#include <fmt/format.h>

namespace oncekey::redis {
namespace {

// The store as a whole is a hash of the fields format, secret (with its check value), generation, replaces, ready,
// lost.

// The layout of keys, markers and records that this version writes.
constexpr int kStoreFormat = 1;

// KEYS: meta. ARGV: format, a new secret, a new generation. Makes it unless it is there; answers its fields.
constexpr std::string_view kCreateScript = R"lua(
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'secret', ARGV[2], 'generation', ARGV[3], 'replaces', '', 'ready', '0',
    'lost', '0')
end
return redis.call('HMGET', KEYS[1], 'format', 'secret', 'generation', 'replaces', 'ready', 'lost')
)lua";

// KEYS: a marker. ARGV: the generation. Makes it unless it is there; answers the generation it has.
constexpr std::string_view kMarkScript = R"lua(
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'replaces', '', 'tick', '0')
end
return redis.call('HGET', KEYS[1], 'generation')
)lua";

// KEYS: meta. ARGV: the identity note as it is expected to be, and the next one. 1 if it was written, else 0.
constexpr std::string_view kIdentityScript = R"lua(
-- A store that was just emptied is made anew by its gateways, not by this.
if redis.call('HEXISTS', KEYS[1], 'generation') == 0 then return 1 end
if (redis.call('HGET', KEYS[1], 'identity') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'identity', ARGV[2])
return 1
)lua";

// KEYS: meta. ARGV: format, secret and generation as this gateway knows them, the generation that was seen there or
// nothing. Notes that memory was lost, unless it has changed since it was seen.
constexpr std::string_view kNoteLossScript = R"lua(
local generation = redis.call('HGET', KEYS[1], 'generation')
if (generation or '') ~= ARGV[4] then return 0 end
if generation then
  redis.call('HSET', KEYS[1], 'lost', '1')
else
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'secret', ARGV[2], 'generation', ARGV[3], 'replaces', '', 'ready', '1',
    'lost', '1')
end
return 1
)lua";

// The fields format, secret (with its check value), generation, replaces, ready, lost.
Result<std::optional<MetaHash>> parse_meta(RedisReply reply) {
  if (reply.size() != 6) return unavailable("Redis gave an answer of an unexpected shape about the store");
  if (reply[2].is_nil()) return std::optional<MetaHash>();
  const std::int64_t format = reply[0].integer().value_or(0);
  if (format > kStoreFormat) {
    return Fault{FaultKind::newer_format,
                 fmt::format("the store in Redis is of format {}, and this version of oncekey knows formats up to {}: "
                             "run the newer version everywhere",
                             format, kStoreFormat)};
  }
  MetaHash meta;
  if (reply[1].text().size() != kSecretWithCheckBytes || format < 1) {
    return corrupt("what Redis keeps of the store as a whole was not written by oncekey; choose another prefix");
  }
  const std::optional<Secret> secret = checked_secret(reply[1].text());
  if (!secret) {
    return corrupt(
        "the secret that Redis keeps for the store does not fit its check value: with another secret no key would be "
        "found, and every retry would be executed again. Restore it from a backup");
  }
  meta.secret = *secret;
  meta.marker.generation = std::string(reply[2].text());
  meta.marker.replaces = std::string(reply[3].text());
  meta.ready = reply[4].text() == "1";
  meta.marker.lost = reply[5].text() == "1";
  return std::optional<MetaHash>(std::move(meta));
}

std::string new_generation() { return fmt::format("{:016x}{:016x}", random_u64(), random_u64()); }

} // namespace

Task<Result<OwnedReply>> MetaKeeper::ask(std::string command) {
  const Result<std::shared_ptr<RedisConnection>> connection = servers_.connection_to(0);
  if (!connection) co_return connection.fault();
  Result<OwnedReply> reply = co_await (*connection)->ask(std::move(command), servers_.store().deadline());
  if (reply && reply->look().is_error()) servers_.refresh_soon();
  co_return without_error(std::move(reply), (*connection)->host());
}

Task<Result<MetaHash>> MetaKeeper::create() {
  Secret secret;
  fill_random(secret);
  const std::string sealed = secret_with_check(secret);
  const std::string generation = new_generation();
  const Result<OwnedReply> reply =
      co_await ask("EVAL", kCreateScript, "1", names_.meta(), std::to_string(kStoreFormat), sealed, generation);
  if (!reply) co_return reply.fault();
  Result<std::optional<MetaHash>> parsed = parse_meta(reply->look());
  if (!parsed) co_return std::move(parsed).fault();
  if (!parsed->has_value()) co_return corrupt("what Redis keeps of the store as a whole was not written by oncekey");
  MetaHash meta = **std::move(parsed);
  if (meta.ready) co_return meta;
  Servers::EachCommand make_marker = [&](std::uint32_t partition) {
    return command({"EVAL", kMarkScript, "1", names_.marker(partition), meta.marker.generation});
  };
  // Markers without their meta: a part of the store was flushed.
  std::function<void(RedisReply)> compare = [&](RedisReply found) {
    if (found.text() != meta.marker.generation) meta.marker.lost = true;
  };
  meta.marker.lost = false;
  const Status made = co_await servers_.on_all_partitions(std::move(make_marker), std::move(compare));
  if (!made) co_return made.fault();
  const Result<OwnedReply> set =
      co_await ask("HSET", names_.meta(), "ready", "1", "lost", meta.marker.lost ? "1" : "0");
  if (!set) co_return set.fault();
  meta.ready = true;
  co_return meta;
}

Task<Result<std::optional<MetaHash>>> MetaKeeper::read() {
  const Result<OwnedReply> reply =
      co_await ask("HMGET", names_.meta(), "format", "secret", "generation", "replaces", "ready", "lost");
  if (!reply) co_return reply.fault();
  co_return parse_meta(reply->look());
}

Task<void> MetaKeeper::note_loss(SharedStoreMeta ours, std::optional<MetaHash> seen) {
  const std::string sealed = secret_with_check(ours.secret);
  const std::string before = seen ? seen->marker.generation : std::string();
  // If it fails, the next look tries again.
  co_await ask("EVAL", kNoteLossScript, "1", names_.meta(), std::to_string(kStoreFormat), sealed,
               ours.marker.generation, before);
}

Task<Result<std::string>> MetaKeeper::read_identity() {
  const Result<OwnedReply> reply = co_await ask("HGET", names_.meta(), "identity");
  if (!reply) co_return reply.fault();
  co_return std::string(reply->look().text());
}

Task<Result<bool>> MetaKeeper::write_identity(std::string expected, std::string next) {
  const Result<OwnedReply> reply = co_await ask("EVAL", kIdentityScript, "1", names_.meta(), expected, next);
  if (!reply) co_return reply.fault();
  co_return reply->look().integer() == 1;
}

Task<Status> MetaKeeper::accept_loss() {
  const Result<std::optional<MetaHash>> found = co_await read();
  if (!found) co_return found.fault();
  Secret secret;
  fill_random(secret);
  if (found->has_value()) secret = (*found)->secret;
  const std::string sealed = secret_with_check(secret);
  const std::string generation = new_generation();
  Servers::EachCommand mark = [&](std::uint32_t partition) {
    return command({"HSET", names_.marker(partition), "generation", generation, "replaces", kReplacesAny, "tick", "0"});
  };
  const Status marked = co_await servers_.on_all_partitions(std::move(mark), [](RedisReply) {});
  if (!marked) co_return marked;
  // Last: gateways follow when they see it here, and by then every marker is in place.
  const Result<OwnedReply> accepted =
      co_await ask("HSET", names_.meta(), "format", std::to_string(kStoreFormat), "secret", sealed, "generation",
                   generation, "replaces", kReplacesAny, "ready", "1", "lost", "0");
  if (!accepted) co_return accepted.fault();
  co_return ok_status();
}

} // namespace oncekey::redis
