#include "store/redis/meta.h"

#include "store/common/secret_check.h"

#include <fmt/format.h>

namespace oncekey::redis {
namespace {

// The layout of keys, markers and records that this version writes.
constexpr int kStoreFormat = 1;

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
