#include "store/redis/servers.h"

#include "store/redis/upkeep.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace oncekey::redis {
namespace {

// A server that restarts is back within some tens of milliseconds; one that is gone must not be hammered.
constexpr Millis kFirstReconnectPause{10};
constexpr Millis kLongestReconnectPause{2000};
// Time for some thousand small commands.
constexpr Millis kAllPartitionsTimeout{5000};
// Nodes that joined or left without a redirection are noticed after this.
constexpr Millis kMapAge{5000};
// The same of a map in which some slots have no server: those of a new cluster become known one after another.
constexpr Millis kPartialMapAge{250};
// During a failover every call wants a new map; asking more often does not bring it sooner.
constexpr Millis kLeastMapAge{100};
constexpr Millis kReadyPoll{10};
// A restarting server is back in less. Another one that is away must not keep a gateway from starting.
constexpr Millis kPatienceWithOthers{1000};
// The number of partitions whose owner is not known.
constexpr std::uint8_t kOfNoServer = kStoreServersMax - 1;

} // namespace

Link::Link(StoreState& store, Host host, std::uint8_t number, Upkeep& upkeep)
    : store_(store),
      host_(std::move(host)),
      number_(number),
      upkeep_(&upkeep),
      pauses_(kFirstReconnectPause, kLongestReconnectPause),
      wake_(store.loop) {}

void Link::stop() {
  upkeep_ = nullptr;
  ready_ = false;
  why_not_ = unavailable("it is no longer used");
  if (connection_) connection_->close("it is no longer used");
  wake_.give();
}

Fault Link::why_not() const {
  return why_not_ ? *why_not_ : unavailable("Redis at " + to_string(host_) + " is being connected");
}

Task<void> Link::keep() {
  const auto self = shared_from_this(); // the task may outlive the last other pointer
  co_await store_.loop.next_turn();     // start() is called in the middle of other things
  while (upkeep_ != nullptr) {
    const Status status = co_await attempt();
    if (upkeep_ == nullptr) break;
    if (status) {
      pauses_.reset();
      ready_ = true;
      why_not_.reset();
      upkeep_->link_ready(host_);
      // No longer ready at the very moment it closes: a call made in between must not be sent into the void.
      connection_->on_closed([self] {
        self->ready_ = false;
        self->wake_.give();
      });
      co_await wake_.wait();
      ready_ = false;
      why_not_ =
          unavailable("the connection to Redis at " + to_string(host_) + " was lost: " + connection_->why_closed());
      if (upkeep_ != nullptr) upkeep_->link_lost(host_, connection_->why_closed());
    } else {
      why_not_ = status.fault();
    }
    if (upkeep_ == nullptr) break;
    co_await wake_.wait_until(Clock::now() + pauses_.next());
  }
}

Task<Status> Link::attempt() {
  connection_ = std::make_shared<RedisConnection>(store_.loop, host_, store_.connections);
  const auto connection = connection_;
  Status status = co_await connection->open(store_.deadline());
  if (status && upkeep_ != nullptr) status = co_await upkeep_->prepare(*this);
  if (status && !connection->is_open()) status = unavailable(connection->why_closed());
  if (!status) connection->close(status.fault().message);
  co_return status;
}

Servers::Servers(StoreState& store, Upkeep& upkeep)
    : store_(store),
      upkeep_(upkeep),
      owners_(store.names.partitions()),
      numbers_(store.names.partitions()),
      refresh_wanted_(store.loop) {
  for (std::atomic<std::uint8_t>& number : numbers_) number = kOfNoServer;
}

void Servers::start() {
  if (!store_.url.cluster) return set_owner(0, link_to(store_.url.hosts[0]));
  spawn(keep_map());
}

void Servers::stop() {
  stopped_ = true;
  refresh_wanted_.give();
  for (const auto& [host, link] : links_) link->stop();
}

std::shared_ptr<Link> Servers::link_to(const Host& host) {
  std::shared_ptr<Link>& link = links_[host];
  if (!link) {
    link = std::make_shared<Link>(store_, host, next_number_, upkeep_);
    next_number_ = static_cast<std::uint8_t>((next_number_ + 1) % kOfNoServer);
    if (!stopped_) link->start();
  }
  return link;
}

void Servers::moved(std::uint32_t partition, const Host& host) {
  set_owner(partition, link_to(host));
  refresh_soon();
}

void Servers::refresh_soon() {
  if (store_.url.cluster) refresh_wanted_.give();
}

std::vector<std::shared_ptr<Link>> Servers::primaries() const {
  std::vector<std::shared_ptr<Link>> primaries = owners_;
  std::sort(primaries.begin(), primaries.end());
  primaries.erase(std::unique(primaries.begin(), primaries.end()), primaries.end());
  std::erase(primaries, nullptr);
  return primaries;
}

std::optional<std::uint32_t> Servers::marked_partition(Link& link) const {
  if (link.marked && owners_[*link.marked].get() == &link) return link.marked;
  const auto owned = std::find(owners_.begin(), owners_.end(), link.shared_from_this());
  link.marked.reset();
  if (owned != owners_.end()) link.marked = static_cast<std::uint32_t>(owned - owners_.begin());
  return link.marked;
}

Result<std::shared_ptr<RedisConnection>> Servers::connection_to(std::uint32_t partition) const {
  const std::shared_ptr<Link>& link = owners_[partition];
  if (!link) return no_map_ ? *no_map_ : unavailable("the cluster's slots are not known yet");
  if (!link->is_ready()) return link->why_not();
  return link->connection();
}

Result<Servers::Shares> Servers::shares() const {
  Shares shares;
  for (std::uint32_t partition = 0; partition < owners_.size(); ++partition) {
    Result<std::shared_ptr<RedisConnection>> connection = connection_to(partition);
    if (!connection) return std::move(connection).fault();
    shares[*connection].push_back(partition);
  }
  return shares;
}

Task<Status> Servers::on_all_partitions(EachCommand make, std::function<void(RedisReply)> reply_came) {
  const MonotonicTime deadline = Clock::now() + kAllPartitionsTimeout;
  const Result<Shares> all = shares();
  if (!all) co_return all.fault();
  for (const auto& [connection, partitions] : *all) {
    std::vector<std::string> commands;
    for (const std::uint32_t partition : partitions) commands.push_back(make(partition));
    std::vector<Result<OwnedReply>> replies = co_await connection->ask_all(std::move(commands), deadline);
    for (Result<OwnedReply>& each : replies) {
      const Result<OwnedReply> reply = without_error(std::move(each), connection->host());
      if (!reply) co_return reply.fault();
      reply_came(reply->look());
    }
  }
  co_return ok_status();
}

Status Servers::any_ready() const {
  for (const std::shared_ptr<Link>& link : primaries()) {
    if (link->is_ready()) return ok_status();
  }
  if (const auto first = connection_to(0); !first) return first.fault();
  return ok_status();
}

Task<Status> Servers::until_ready(MonotonicTime deadline) {
  MonotonicTime others = MonotonicTime::max();
  while (true) {
    const Result<Shares> ready = shares();
    const MonotonicTime now = Clock::now();
    if (ready) co_return ok_status();
    if (ready.fault().kind == FaultKind::invalid) co_return ready.fault();
    const Result<std::shared_ptr<RedisConnection>> first = connection_to(0);
    const std::vector<std::shared_ptr<Link>> links = primaries();
    const bool tried = std::none_of(links.begin(), links.end(), [](const auto& link) { return link->is_new(); });
    if (first && tried && others == MonotonicTime::max()) others = now + kPatienceWithOthers;
    if (now >= std::min(deadline, others)) co_return first ? ok_status() : first.fault();
    co_await sleep_for(store_.loop, kReadyPoll);
  }
}

Host Servers::any_host() {
  std::vector<Host> hosts;
  for (const auto& [host, link] : links_) {
    if (link->is_ready()) hosts.push_back(host);
  }
  const std::vector<Host>& from = hosts.empty() ? store_.url.hosts : hosts;
  return from[turn_++ % from.size()];
}

Task<void> Servers::keep_map() {
  while (!stopped_) {
    const Status status = co_await refresh();
    if (stopped_) break;
    no_map_.reset();
    if (!status) no_map_ = status.fault();
    co_await sleep_for(store_.loop, kLeastMapAge);
    const bool whole = std::all_of(owners_.begin(), owners_.end(), [](const auto& owner) { return owner != nullptr; });
    if (status) co_await refresh_wanted_.wait_until(Clock::now() + (whole ? kMapAge : kPartialMapAge));
  }
}

Task<Status> Servers::refresh() {
  std::vector<std::shared_ptr<RedisConnection>> known;
  for (const auto& [host, link] : links_) {
    if (link->is_ready()) known.push_back(link->connection());
  }
  const std::size_t first = turn_++;
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Status status = co_await refresh_from(known[(first + i) % known.size()]);
    if (status || stopped_) co_return status;
  }
  Status status = unavailable("no node of the cluster can be reached");
  for (std::size_t i = 0; i < store_.url.hosts.size() && !stopped_; ++i) {
    const Host& host = store_.url.hosts[(first + i) % store_.url.hosts.size()];
    const auto connection = std::make_shared<RedisConnection>(store_.loop, host, store_.connections);
    status = co_await connection->open(store_.deadline());
    if (status && !stopped_) status = co_await refresh_from(connection);
    connection->close("it is no longer needed");
    if (status || status.fault().kind == FaultKind::invalid) break;
  }
  co_return status;
}

Task<Status> Servers::refresh_from(std::shared_ptr<RedisConnection> connection) {
  const Result<OwnedReply> reply = co_await connection->ask(store_.deadline(), "CLUSTER", "SLOTS");
  if (stopped_) co_return unavailable("the store is closed");
  if (!reply) co_return reply.fault();
  const std::string where = to_string(connection->host());
  if (reply->look().is_error()) {
    const ServerError error = parse_error(reply->look().text());
    if (error.kind != ErrorKind::unclear) co_return fault_of(error, connection->host());
    co_return invalid(fmt::format("Redis at {} gives no slots: {} (if it is not a cluster, write redis:// in the URL)",
                                  where, error.text));
  }
  const Result<std::vector<SlotRange>> ranges = parse_slots(reply->look(), connection->host());
  if (!ranges) co_return ranges.fault();
  if (ranges->empty()) co_return unavailable(fmt::format("Redis at {} knows of no slots that are served", where));
  apply(*ranges);
  co_return ok_status();
}

void Servers::apply(const std::vector<SlotRange>& ranges) {
  for (std::uint32_t partition = 0; partition < store_.names.partitions(); ++partition) {
    const std::uint16_t slot = store_.names.slot(partition);
    const auto range = std::find_if(ranges.begin(), ranges.end(),
                                    [&](const SlotRange& each) { return each.first <= slot && slot <= each.last; });
    // A slot without a server stays with its last one, whose connection says best what is wrong.
    if (range != ranges.end()) set_owner(partition, link_to(range->primary));
  }
  count_ = std::set(owners_.begin(), owners_.end()).size();
  drop_unused();
}

void Servers::set_owner(std::uint32_t partition, const std::shared_ptr<Link>& link) {
  owners_[partition] = link;
  numbers_[partition].store(link->number(), std::memory_order_relaxed);
}

void Servers::drop_unused() {
  const std::vector<std::shared_ptr<Link>> used = primaries();
  std::erase_if(links_, [&](const auto& entry) {
    const std::shared_ptr<Link>& link = entry.second;
    if (std::find(used.begin(), used.end(), link) != used.end()) return false;
    if (link->groups > 0 || link->queue.has_ids()) return false;
    link->stop();
    return true;
  });
}

} // namespace oncekey::redis
