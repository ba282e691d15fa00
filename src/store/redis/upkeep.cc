#include "store/redis/upkeep.h"

#include <set>

namespace oncekey::redis {
namespace {

constexpr Millis kTickEvery{1000};
constexpr int kTicksPerExamination = 5;
// However often look_again() is called.
constexpr Millis kLeastBetweenLooks{100};

} // namespace

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
    if (!status) break;
    status = co_await dispatcher_.tick(connection, each);
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
  state_.marker.secret = found->secret;
  // First as if all were well, so that the watch knows which generation a loss would have to be accepted from.
  Marker marker{found->marker.generation, found->marker.replaces, 0, false};
  if (Status seen = state_.marker.memory.see(state_.names.partitions(), marker); !seen) co_return seen;
  see_meta(*found);
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

void Upkeep::tick_all() {
  for (const std::shared_ptr<Link>& link : servers_.primaries()) {
    const std::optional<std::uint32_t> partition = servers_.marked_partition(*link);
    if (!partition || !link->is_ready()) continue;
    // One that fails is repeated by the next tick.
    spawn(then(dispatcher_.tick(link->connection(), *partition), [](const Status&) {}));
  }
}

void Upkeep::examine_all() {
  std::vector<Host> hosts;
  for (const std::shared_ptr<Link>& link : servers_.primaries()) {
    hosts.push_back(link->host());
    if (!link->is_ready()) continue;
    spawn(then(examine_server(link->connection()), [connection = link->connection()](const Status& status) {
      // The server has become a replica, or another version: it cannot be used. The next attempt to connect says why.
      if (!status && status.fault().kind == FaultKind::invalid) connection->close(status.fault().message);
    }));
  }
  state_.keep_only(hosts);
}

Task<void> Upkeep::look_at_meta() {
  const Result<std::optional<MetaHash>> found = co_await meta.read();
  if (!found || stopped_) co_return;
  see_meta(*found);
  if (!state_.marker.must_note_loss(*found)) co_return;
  SharedStoreMeta ours;
  ours.secret = state_.marker.secret;
  ours.marker.generation = state_.marker.memory.generation();
  co_await meta.note_loss(ours, *found);
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
