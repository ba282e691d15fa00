#include "store/redis/upkeep.h"

#include "redis/server_error.h"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace oncekey::redis {
namespace {

constexpr Millis kTickEvery{1000};
constexpr int kTicksPerExamination = 5;
// However often look_again() is called.
constexpr Millis kLeastBetweenLooks{100};

} // namespace

Upkeep::Upkeep(Loop& loop, Log& log, const RedisUrl& url, Servers& servers, Dispatcher& dispatcher, MetaKeeper& meta,
               StoreState& state, const KeyNames& names, Millis call_timeout)
    : loop_(loop),
      log_(log),
      url_(url),
      servers_(servers),
      dispatcher_(dispatcher),
      meta_(meta),
      state_(state),
      names_(names),
      call_timeout_(call_timeout),
      look_wanted_(loop) {}

Task<Status> Upkeep::prepare(std::shared_ptr<RedisConnection> connection) {
  // First, because a server that wants a password closes a connection that begins with something as long as a script.
  Status status = co_await examine_server(connection);
  if (status) status = co_await dispatcher_.load_script(connection);
  if (!status) co_return status;
  // A server that comes back may have lost its memory.
  const std::shared_ptr<Link> link = servers_.find_link(connection->host());
  const std::optional<std::uint32_t> partition = link ? servers_.marked_partition(*link) : std::nullopt;
  if (state_.marker.memory.generation().empty()) co_return status;
  // After a failover the slots become known as this server's one by one, nodes that have not heard of it give old maps
  // in between, and only some markers were ever looked at. It is asked for all of those: what is not its own it
  // refuses.
  std::set<std::uint32_t> partitions = dispatcher_.watched();
  if (partition) partitions.insert(*partition);
  for (const std::uint32_t each : partitions) {
    if (!status) break;
    status = co_await dispatcher_.tick(connection, each);
  }
  co_return status;
}

Task<std::optional<std::string>> Upkeep::setting(std::shared_ptr<RedisConnection> connection, std::string_view name) {
  std::string get = command({"CONFIG", "GET", name});
  const Result<OwnedReply> reply = co_await connection->ask(std::move(get), Clock::now() + call_timeout_);
  std::optional<std::string> value;
  if (reply && reply->look()[1].is_text()) value = std::string(reply->look()[1].text());
  co_return value;
}

Task<Status> Upkeep::examine_server(std::shared_ptr<RedisConnection> connection) {
  std::string get = command({"INFO"});
  const Result<OwnedReply> reply = co_await connection->ask(std::move(get), Clock::now() + call_timeout_);
  if (!reply) co_return reply.fault();
  if (reply->look().is_error()) co_return fault_of(parse_error(reply->look().text()), connection->host());
  const InfoFields info = parse_info(reply->look().text());
  ServerSettings settings;
  settings.appendfsync = co_await setting(connection, "appendfsync");
  settings.no_appendfsync_on_rewrite = co_await setting(connection, "no-appendfsync-on-rewrite");
  settings.maxmemory_policy = co_await setting(connection, "maxmemory-policy");
  const Result<Examination> found = examine(info, settings, url_, connection->host());
  if (!found) co_return found.fault();
  state_.examined(connection->host(), *found);
  co_return ok_status();
}

Task<Status> Upkeep::adopt_store() {
  Result<MetaHash> meta = co_await meta_.create();
  if (!meta) co_return std::move(meta).fault();
  state_.marker.secret = meta->secret;
  // First as if all were well, so that the watch knows which generation a loss would have to be accepted from.
  Marker marker{meta->marker.generation, meta->marker.replaces, 0, false};
  if (Status seen = state_.marker.memory.see(names_.partitions(), marker); !seen) co_return seen;
  see_meta(*meta);
  for (const std::shared_ptr<Link>& link : servers_.primaries()) {
    const std::optional<std::uint32_t> partition = servers_.marked_partition(*link);
    if (partition && link->is_ready()) co_await dispatcher_.tick(link->connection(), *partition);
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
      tick_all();
      if (++ticks % kTicksPerExamination == 0) examine_all();
    }
    co_await look_at_meta();
    state_.reachable(servers_.any_ready());
    say_what_changed();
    if (!stopped_) co_await sleep_for(loop_, kLeastBetweenLooks);
  }
}

void Upkeep::look_again() { look_wanted_.give(); }

void Upkeep::stop() {
  stopped_ = true;
  look_wanted_.give();
}

void Upkeep::tick_all() {
  for (const std::shared_ptr<Link>& link : servers_.primaries()) {
    const std::optional<std::uint32_t> partition = servers_.marked_partition(*link);
    if (!partition || !link->is_ready()) continue;
    spawn(tick_server(link->connection(), *partition));
  }
}

Task<void> Upkeep::tick_server(std::shared_ptr<RedisConnection> connection, std::uint32_t partition) {
  const Status repeated_by_the_next_tick = co_await dispatcher_.tick(connection, partition);
}

void Upkeep::examine_all() {
  std::vector<Host> hosts;
  for (const std::shared_ptr<Link>& link : servers_.primaries()) {
    hosts.push_back(link->host());
    if (!link->is_ready()) continue;
    spawn(examine_again(link->connection()));
  }
  state_.keep_only(hosts);
}

Task<void> Upkeep::examine_again(std::shared_ptr<RedisConnection> connection) {
  const Status status = co_await examine_server(connection);
  // The server has become a replica, or another version: it cannot be used. The next attempt to connect says why.
  if (!status && status.fault().kind == FaultKind::invalid) connection->close(status.fault().message);
}

Task<void> Upkeep::look_at_meta() {
  const Result<std::optional<MetaHash>> found = co_await meta_.read();
  if (!found || stopped_) co_return;
  see_meta(*found);
  if (!state_.marker.must_note_loss(*found)) co_return;
  SharedStoreMeta ours;
  ours.secret = state_.marker.secret;
  ours.marker.generation = state_.marker.memory.generation();
  co_await meta_.note_loss(ours, *found);
}

void Upkeep::see_meta(const std::optional<MetaHash>& meta) {
  // At the place behind those of the partitions' markers. may_claim() tells what it means.
  const Status seen = state_.marker.see(names_.partitions(), meta);
}

void Upkeep::say_what_changed() {
  state_.marker.report_durability(state_.durability(), state_.durability_reason());
  state_.marker.report_memory(state_.remembers());
}

} // namespace oncekey::redis
