#include "store/redis/servers.h"

#include "redis/server_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace oncekey::redis {
namespace {

// Nodes that joined or left without a redirection are noticed after this.
constexpr Millis kMapAge{5000};
// During a failover every call wants a new map; asking more often does not bring it sooner.
constexpr Millis kLeastMapAge{100};
constexpr Millis kReadyPoll{10};
// A restarting server is back in less. Another one that is away must not keep a gateway from starting.
constexpr Millis kPatienceWithOthers{1000};
// The number of partitions whose owner is not known.
constexpr std::uint8_t kOfNoServer = kStoreServersMax - 1;

} // namespace

Servers::Servers(Loop& loop, const RedisUrl& url, const ConnectionOptions& options, Millis call_timeout,
                 const KeyNames& names, LinkOwner& owner)
    : loop_(loop),
      url_(url),
      options_(options),
      call_timeout_(call_timeout),
      names_(names),
      owner_(owner),
      owners_(names.partitions()),
      numbers_(names.partitions()),
      refresh_wanted_(loop) {
  for (std::atomic<std::uint8_t>& number : numbers_) number = kOfNoServer;
}

void Servers::start() {
  if (!url_.cluster) {
    return set_owner(0, link_to(url_.hosts[0]));
  }
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
    link = std::make_shared<Link>(loop_, host, next_number_, options_, call_timeout_, owner_);
    next_number_ = static_cast<std::uint8_t>((next_number_ + 1) % kOfNoServer);
    if (!stopped_) link->start();
  }
  return link;
}

std::shared_ptr<Link> Servers::find_link(const Host& host) const {
  const auto found = links_.find(host);
  return found == links_.end() ? nullptr : found->second;
}

void Servers::moved(std::uint32_t partition, const Host& host) {
  set_owner(partition, link_to(host));
  refresh_soon();
}

void Servers::refresh_soon() {
  if (url_.cluster) refresh_wanted_.give();
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
  link.marked.reset();
  for (std::uint32_t partition = 0; partition < owners_.size(); ++partition) {
    if (owners_[partition].get() == &link) {
      link.marked = partition;
      break;
    }
  }
  return link.marked;
}

Fault Servers::no_map() const { return no_map_ ? *no_map_ : unavailable("the cluster's slots are not known yet"); }

Status Servers::all_ready() const {
  const Link* seen = nullptr;
  for (const std::shared_ptr<Link>& link : owners_) {
    if (!link) return no_map();
    if (link.get() == seen) continue;
    seen = link.get();
    if (!link->is_ready()) return link->why_not();
  }
  return ok_status();
}

Status Servers::first_ready() const {
  if (!owners_[0]) return no_map();
  if (!owners_[0]->is_ready()) return owners_[0]->why_not();
  return ok_status();
}

Status Servers::any_ready() const {
  for (const std::shared_ptr<Link>& link : primaries()) {
    if (link->is_ready()) return ok_status();
  }
  return first_ready();
}

Task<Status> Servers::until_ready(MonotonicTime deadline) {
  MonotonicTime others = MonotonicTime::max();
  while (true) {
    Status ready = all_ready();
    const MonotonicTime now = Clock::now();
    if (ready || ready.fault().kind == FaultKind::invalid) co_return ready;
    Status first = first_ready();
    const std::vector<std::shared_ptr<Link>> links = primaries();
    const bool tried = std::none_of(links.begin(), links.end(), [](const auto& link) { return link->is_new(); });
    if (first && tried && others == MonotonicTime::max()) others = now + kPatienceWithOthers;
    if (now >= std::min(deadline, others)) co_return first;
    co_await sleep_for(loop_, kReadyPoll);
  }
}

Host Servers::any_host() {
  std::vector<Host> hosts;
  for (const auto& [host, link] : links_) {
    if (link->is_ready()) hosts.push_back(host);
  }
  const std::vector<Host>& from = hosts.empty() ? url_.hosts : hosts;
  return from[turn_++ % from.size()];
}

Task<void> Servers::keep_map() {
  while (!stopped_) {
    const Status status = co_await refresh();
    if (stopped_) break;
    no_map_.reset();
    if (!status) no_map_ = status.fault();
    co_await sleep_for(loop_, kLeastMapAge);
    if (status) co_await refresh_wanted_.wait_until(Clock::now() + kMapAge);
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
  for (std::size_t i = 0; i < url_.hosts.size() && !stopped_; ++i) {
    const Host& host = url_.hosts[(first + i) % url_.hosts.size()];
    const auto connection = std::make_shared<RedisConnection>(loop_, host, options_);
    status = co_await connection->open(Clock::now() + call_timeout_);
    if (status && !stopped_) status = co_await refresh_from(connection);
    connection->close("it is no longer needed");
    if (status || status.fault().kind == FaultKind::invalid) break;
  }
  co_return status;
}

Task<Status> Servers::refresh_from(std::shared_ptr<RedisConnection> connection) {
  std::string slots = command({"CLUSTER", "SLOTS"});
  const Result<OwnedReply> reply = co_await connection->ask(std::move(slots), Clock::now() + call_timeout_);
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
  for (std::uint32_t partition = 0; partition < names_.partitions(); ++partition) {
    const std::uint16_t slot = names_.slot(partition);
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
