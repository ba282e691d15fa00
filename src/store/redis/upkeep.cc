#include "store/redis/upkeep.h"

#include "base/faults.h"

#include <fmt/format.h>

#include <set>

namespace oncekey::redis {
namespace {

constexpr Millis kTickEvery{1000};
constexpr int kTicksPerExamination = 5;
// However often look_again() is called.
constexpr Millis kLeastBetweenLooks{100};

// The store as a whole is a hash of the fields format, secret (a KeptSecret), generation, replaces, ready, lost.

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

// KEYS: meta. ARGV: the field of a note, the note as it is expected to be, and the next one. 1 if it was written, else
// 0.
constexpr std::string_view kNoteScript = R"lua(
-- A store that was just emptied is made anew by its gateways, not by this.
if redis.call('HEXISTS', KEYS[1], 'generation') == 0 then return 1 end
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
)lua";

// KEYS: meta. ARGV: the secret as it is expected to be kept, and as it is kept from now on.
constexpr std::string_view kResealScript = R"lua(
if redis.call('HGET', KEYS[1], 'secret') == ARGV[1] then redis.call('HSET', KEYS[1], 'secret', ARGV[2]) end
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

// The fields format, secret (a KeptSecret), generation, replaces, ready, lost.
Result<std::optional<MetaHash>> parse_meta(RedisReply reply) {
  if (reply.size() != 6) return unavailable("Redis gave an answer of an unexpected shape about the store");
  if (reply[2].is_nil()) return std::optional<MetaHash>();
  const std::int64_t format = reply[0].integer().value_or(0);
  if (format > kStoreFormat) {
    return newer_format("the store in Redis", static_cast<std::uint64_t>(format), kStoreFormat);
  }
  MetaHash meta;
  if (format < 1) {
    return corrupt("what Redis keeps of the store as a whole was not written by oncekey; choose another prefix");
  }
  Result<KeptSecret> secret = KeptSecret::parse(reply[1].text());
  if (!secret) return std::move(secret).fault();
  meta.secret = *std::move(secret);
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
  const KeptSecret kept(secret, servers_.store().marker.sealer);
  const std::string generation = new_generation();
  const Result<OwnedReply> reply =
      co_await ask("EVAL", kCreateScript, "1", names_.meta(), std::to_string(kStoreFormat), kept.bytes(), generation);
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

Task<void> MetaKeeper::note_loss(std::string seen) {
  const MarkerKeeper& ours = servers_.store().marker;
  const KeptSecret kept(ours.secret, ours.sealer);
  const std::string generation = ours.memory.generation();
  // If it fails, the next look tries again.
  (void)co_await ask("EVAL", kNoteLossScript, "1", names_.meta(), std::to_string(kStoreFormat), kept.bytes(),
                     generation, seen);
}

Task<void> MetaKeeper::reseal(KeptSecret seen) {
  const MarkerKeeper& ours = servers_.store().marker;
  const KeptSecret next(ours.secret, ours.sealer);
  // If it fails, the next look tries again.
  (void)co_await ask("EVAL", kResealScript, "1", names_.meta(), seen.bytes(), next.bytes());
}

Task<Status> MetaKeeper::reseal_with(const Sealer& sealer) {
  const Result<std::optional<MetaHash>> found = co_await read();
  if (!found) co_return found.fault();
  if (!found->has_value() || !(*found)->secret.must_be_resealed(&sealer)) co_return ok_status();
  const KeptSecret& seen = (*found)->secret;
  const Result<Secret> secret = seen.open(&sealer);
  if (!secret) co_return secret.fault();
  const KeptSecret next(*secret, &sealer);
  const Result<OwnedReply> done = co_await ask("EVAL", kResealScript, "1", names_.meta(), seen.bytes(), next.bytes());
  co_return done ? ok_status() : Status(done.fault());
}

Task<Result<bool>> MetaKeeper::exists() {
  const Result<OwnedReply> reply = co_await ask("HEXISTS", names_.meta(), "generation");
  if (!reply) co_return reply.fault();
  co_return reply->look().integer() == 1;
}

Task<Result<std::string>> MetaKeeper::read_note(StoreNote note) {
  const Result<OwnedReply> reply = co_await ask("HGET", names_.meta(), name_of(note));
  if (!reply) co_return reply.fault();
  co_return std::string(reply->look().text());
}

Task<Result<bool>> MetaKeeper::write_note(StoreNote note, std::string expected, std::string next) {
  const Result<OwnedReply> reply = co_await ask("EVAL", kNoteScript, "1", names_.meta(), name_of(note), expected, next);
  if (!reply) co_return reply.fault();
  co_return reply->look().integer() == 1;
}

Task<Status> MetaKeeper::accept_loss() {
  const Result<std::optional<MetaHash>> found = co_await read();
  if (!found) co_return found.fault();
  Secret secret;
  fill_random(secret);
  const KeptSecret kept = found->has_value() ? (*found)->secret : KeptSecret(secret, nullptr);
  const std::string generation = new_generation();
  Servers::EachCommand mark = [&](std::uint32_t partition) {
    return command({"HSET", names_.marker(partition), "generation", generation, "replaces", kReplacesAny, "tick", "0"});
  };
  const Status marked = co_await servers_.on_all_partitions(std::move(mark), [](RedisReply) {});
  if (!marked) co_return marked;
  // Last: gateways follow when they see it here, and by then every marker is in place.
  const Result<OwnedReply> accepted =
      co_await ask("HSET", names_.meta(), "format", std::to_string(kStoreFormat), "secret", kept.bytes(), "generation",
                   generation, "replaces", kReplacesAny, "ready", "1", "lost", "0");
  if (!accepted) co_return accepted.fault();
  co_return ok_status();
}

Task<Status> Upkeep::prepare(Link& link) {
  const std::shared_ptr<RedisConnection> connection = link.connection();
  // First, because a server that wants a password closes a connection that begins with something as long as a script.
  Status status = co_await examine_server(connection);
  if (status) status = co_await dispatcher_.load_script(connection);
  if (!status) co_return status;
  // A server that comes back may have lost its memory.
  const std::optional<std::uint32_t> partition = servers_.marked_partition(link);
  if (state_.marker.memory.generation().empty()) co_return status;
  // After a failover the slots become known as this server's one by one, nodes that have not heard of it give old maps
  // in between, and only some markers were ever looked at. It is asked for all of those: what is not its own it
  // refuses.
  std::set<std::uint32_t> partitions = dispatcher_.watched();
  if (partition) partitions.insert(*partition);
  for (const std::uint32_t each : partitions) {
    if (status) status = co_await dispatcher_.tick(connection, each);
  }
  co_return status;
}

Task<Status> Upkeep::examine_server(std::shared_ptr<RedisConnection> connection) {
  std::vector<std::string> commands{command({"INFO"})};
  for (const std::string_view name : {"appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy"}) {
    commands.push_back(command({"CONFIG", "GET", name}));
  }
  std::vector<Result<OwnedReply>> replies = co_await connection->ask_all(std::move(commands), state_.deadline());
  const Result<OwnedReply> info = without_error(std::move(replies[0]), connection->host());
  if (!info) co_return info.fault();
  const auto setting = [&](std::size_t number) {
    const RedisReply value = replies[number] ? replies[number]->look()[1] : RedisReply();
    return value.is_text() ? std::optional(std::string(value.text())) : std::nullopt;
  };
  const ServerSettings settings{setting(1), setting(2), setting(3)};
  const Result<Examination> found = examine(parse_info(info->look().text()), settings, state_.url, connection->host());
  if (!found) co_return found.fault();
  state_.examined(connection->host(), *found);
  co_return ok_status();
}

Task<Status> Upkeep::adopt_store() {
  Result<MetaHash> found = co_await meta.create();
  if (!found) co_return std::move(found).fault();
  const Result<Secret> secret = found->secret.open(state_.marker.sealer);
  if (!secret) co_return secret.fault();
  state_.marker.secret = *secret;
  // First as if all were well, so that the watch knows which generation a loss would have to be accepted from.
  Marker marker{found->marker.generation, found->marker.replaces, 0, false};
  if (Status seen = state_.marker.memory.see(state_.names.partitions(), marker); !seen) co_return seen;
  see_meta(*found);
  for (const std::shared_ptr<Link>& link : servers_.primaries()) {
    const std::optional<std::uint32_t> partition = servers_.marked_partition(*link);
    // Upkeep ticks again.
    if (partition && link->is_ready()) (void)co_await dispatcher_.tick(link->connection(), *partition);
  }
  say_what_changed();
  co_return ok_status();
}

Task<void> Upkeep::run() {
  MonotonicTime next_tick = Clock::now() + kTickEvery;
  int ticks = 0;
  while (!stopped_) {
    co_await look_wanted_.wait_until(next_tick);
    if (stopped_) break;
    if (Clock::now() >= next_tick) {
      next_tick = Clock::now() + kTickEvery;
      check_all(++ticks % kTicksPerExamination == 0 ? Settings::examine : Settings::leave);
    }
    co_await look_at_meta();
    state_.reachable(servers_.any_ready());
    say_what_changed();
    if (!stopped_) co_await sleep_for(state_.loop, kLeastBetweenLooks);
  }
}

void Upkeep::link_ready(const Host& host) {
  state_.log.info("store_connected", {{"server", to_string(host)}});
  state_.reachable(servers_.any_ready());
}

void Upkeep::link_lost(const Host& host, const std::string& why) {
  state_.log.warning("store_connection_lost", {{"server", to_string(host)}, {"reason", why}});
  state_.reachable(servers_.any_ready());
  servers_.refresh_soon();
}

void Upkeep::stop() {
  stopped_ = true;
  look_wanted_.give();
}

void Upkeep::check_all(Settings settings) {
  std::vector<Host> hosts;
  for (const std::shared_ptr<Link>& link : servers_.primaries()) {
    hosts.push_back(link->host());
    if (!link->is_ready()) continue;
    const std::shared_ptr<RedisConnection> connection = link->connection();
    // A tick that fails is repeated by the next one.
    if (const std::optional<std::uint32_t> partition = servers_.marked_partition(*link))
      spawn(then(dispatcher_.tick(connection, *partition), [](const Status&) {}));
    if (settings == Settings::leave) continue;
    spawn(then(examine_server(connection), [connection](const Status& status) {
      // The server has become a replica, or another version: it cannot be used. The next attempt to connect says why.
      if (!status && status.fault().kind == FaultKind::invalid) connection->close(status.fault().message);
    }));
  }
  if (settings == Settings::examine) state_.keep_only(hosts);
}

Task<void> Upkeep::look_at_meta() {
  const Result<std::optional<MetaHash>> found = co_await meta.read();
  if (!found || stopped_) co_return;
  see_meta(*found);
  if (*found && state_.marker.must_reseal((*found)->secret)) co_await meta.reseal((*found)->secret);
  if (!state_.marker.must_note_loss(*found)) co_return;
  std::string seen = *found ? (*found)->marker.generation : std::string();
  co_await meta.note_loss(std::move(seen));
}

void Upkeep::see_meta(const std::optional<MetaHash>& found) {
  // At the place behind those of the partitions' markers. may_claim() tells what it means.
  const Status seen = state_.marker.see(state_.names.partitions(), found);
}

void Upkeep::say_what_changed() {
  state_.marker.report_durability(state_.durability(), state_.durability_reason());
  state_.marker.report_memory(state_.remembers());
}

} // namespace oncekey::redis
