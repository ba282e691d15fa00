#include "store/redis/meta.h"

#include "redis/server_error.h"
#include "store/common/secret_check.h"
#include "store/redis/scripts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey::redis {
namespace {

// Time for some thousand small commands.
constexpr Millis kMarkersTimeout{5000};

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

} // namespace

std::string new_generation() { return fmt::format("{:016x}{:016x}", random_u64(), random_u64()); }

Task<Status> on_all_partitions(Loop& loop, Servers& servers, std::uint32_t partitions, MonotonicTime deadline,
                               EachCommand make, EachCheck check) {
  struct Gathering {
    explicit Gathering(Loop& on) : all(on) {}
    std::uint32_t left = 0;
    Status status = ok_status();
    EachCheck check;
    Notice all;
  };
  const auto gathering = std::make_shared<Gathering>(loop);
  gathering->left = partitions;
  gathering->check = std::move(check);
  for (std::uint32_t partition = 0; partition < partitions; ++partition) {
    const std::shared_ptr<Link> link = servers.owner_of(partition);
    const auto told = [gathering, partition, link](const Result<OwnedReply>& reply) {
      Status status = ok_status();
      if (!reply) {
        status = reply.fault();
      } else if (reply->look().is_error()) {
        status = fault_of(parse_error(reply->look().text()), link->host());
      } else {
        status = gathering->check(partition, reply->look());
      }
      if (gathering->status) gathering->status = std::move(status);
      if (--gathering->left == 0) gathering->all.give();
    };
    if (link && link->is_ready()) {
      link->connection()->send(make(partition), deadline, told);
    } else {
      told(link ? link->why_not() : unavailable("the cluster's slots are not known yet"));
    }
  }
  co_await gathering->all.wait();
  co_return gathering->status;
}

Task<Result<OwnedReply>> MetaKeeper::ask(std::string command) {
  const std::shared_ptr<Link> link = servers_.owner_of(0);
  if (!link || !link->is_ready())
    co_return link ? link->why_not() : unavailable("the cluster's slots are not known yet");
  Result<OwnedReply> reply = co_await link->connection()->ask(std::move(command), Clock::now() + call_timeout_);
  if (reply && reply->look().is_error()) {
    servers_.refresh_soon();
    co_return fault_of(parse_error(reply->look().text()), link->host());
  }
  co_return reply;
}

Task<Status> MetaKeeper::set(std::string command) {
  const Result<OwnedReply> reply = co_await ask(std::move(command));
  if (!reply) co_return reply.fault();
  co_return ok_status();
}

Task<Result<MetaHash>> MetaKeeper::create() {
  Secret secret;
  fill_random(secret);
  std::string create = command({"EVAL", kCreateScript, "1", names_.meta(), std::to_string(kStoreFormat),
                                secret_with_check(secret), new_generation()});
  const Result<OwnedReply> reply = co_await ask(std::move(create));
  if (!reply) co_return reply.fault();
  Result<std::optional<MetaHash>> parsed = parse_meta(reply->look());
  if (!parsed) co_return std::move(parsed).fault();
  if (!parsed->has_value()) co_return corrupt("what Redis keeps of the store as a whole was not written by oncekey");
  MetaHash meta = **std::move(parsed);
  if (meta.ready) co_return meta;
  bool foreign = false;
  const Status made = co_await make_markers(meta.marker.generation, foreign);
  if (!made) co_return made.fault();
  // Markers without their meta: a part of the store was flushed.
  std::string ready = command({"HSET", names_.meta(), "ready", "1", "lost", foreign ? "1" : "0"});
  const Status set_ready = co_await set(std::move(ready));
  if (!set_ready) co_return set_ready.fault();
  meta.ready = true;
  meta.marker.lost = foreign;
  co_return meta;
}

Task<Status> MetaKeeper::make_markers(std::string generation, bool& foreign) {
  EachCommand make = [&](std::uint32_t partition) {
    return command({"EVAL", kMarkScript, "1", names_.marker(partition), generation});
  };
  EachCheck check = [&](std::uint32_t, RedisReply reply) {
    if (reply.text() != generation) foreign = true;
    return ok_status();
  };
  const Status status = co_await on_all_partitions(loop_, servers_, names_.partitions(), Clock::now() + kMarkersTimeout,
                                                   std::move(make), std::move(check));
  co_return status;
}

Task<Result<std::optional<MetaHash>>> MetaKeeper::read() {
  std::string get = command({"HMGET", names_.meta(), "format", "secret", "generation", "replaces", "ready", "lost"});
  const Result<OwnedReply> reply = co_await ask(std::move(get));
  if (!reply) co_return reply.fault();
  co_return parse_meta(reply->look());
}

Task<void> MetaKeeper::note_loss(SharedStoreMeta ours, std::optional<MetaHash> seen) {
  std::string note =
      command({"EVAL", kNoteLossScript, "1", names_.meta(), std::to_string(kStoreFormat),
               secret_with_check(ours.secret), ours.marker.generation, seen ? seen->marker.generation : std::string()});
  co_await ask(std::move(note)); // if it fails, the next look tries again
}

Task<Status> MetaKeeper::read_identity(std::string& text) {
  std::string get = command({"HGET", names_.meta(), "identity"});
  const Result<OwnedReply> reply = co_await ask(std::move(get));
  if (!reply) co_return reply.fault();
  text = reply->look().is_nil() ? std::string() : std::string(reply->look().text());
  co_return ok_status();
}

Task<Status> MetaKeeper::write_identity(std::string expected, std::string next, bool& written) {
  std::string set = command({"EVAL", kIdentityScript, "1", names_.meta(), expected, next});
  const Result<OwnedReply> reply = co_await ask(std::move(set));
  if (!reply) co_return reply.fault();
  written = reply->look().integer().value_or(0) == 1;
  co_return ok_status();
}

Task<Status> MetaKeeper::accept_loss() {
  const Result<std::optional<MetaHash>> found = co_await read();
  if (!found) co_return found.fault();
  Secret secret;
  fill_random(secret);
  if (found->has_value()) secret = (*found)->secret;
  const std::string generation = new_generation();
  EachCommand make = [&](std::uint32_t partition) {
    return command({"HSET", names_.marker(partition), "generation", generation, "replaces", kReplacesAny, "tick", "0"});
  };
  EachCheck check = [](std::uint32_t, RedisReply) { return ok_status(); };
  const Status marked = co_await on_all_partitions(loop_, servers_, names_.partitions(), Clock::now() + kMarkersTimeout,
                                                   std::move(make), std::move(check));
  if (!marked) co_return marked;
  // Last: gateways follow when they see it here, and by then every marker is in place.
  std::string accept =
      command({"HSET", names_.meta(), "format", std::to_string(kStoreFormat), "secret", secret_with_check(secret),
               "generation", generation, "replaces", kReplacesAny, "ready", "1", "lost", "0"});
  const Status status = co_await set(std::move(accept));
  co_return status;
}

} // namespace oncekey::redis
