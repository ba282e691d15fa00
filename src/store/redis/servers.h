// Servers: the links to all servers of a store, and which of them has which partition.
//
// A single server has all of them. In a cluster the map comes from any node that can be reached, and is asked for again
// when a node says that a slot has moved, when a connection is lost, and every few seconds.
//
// Used on the loop's thread alone, except where said otherwise.
#pragma once

#include "base/backoff.h"
#include "store/redis/script_call.h"
#include "store/redis/store_state.h"

namespace oncekey::redis {

class Upkeep;

// Keeps one server connected, for as long as it is wanted.
//
// Connects, has the connection prepared (Upkeep: scripts loaded, server examined), and is then ready. When the
// connection is lost it starts again, after a pause that grows and is drawn at random. While it is not ready, it says
// why.
class Link : public std::enable_shared_from_this<Link> {
 public:
  // `number` is the server's in Store::server_of.
  Link(StoreState& store, Host host, std::uint8_t number, Upkeep& upkeep);

  void start() { spawn(keep()); }
  // Closes the connection; the upkeep is not called any more.
  void stop();

  const Host& host() const { return host_; }
  std::uint8_t number() const { return number_; }
  bool is_ready() const { return ready_; }
  // The first attempt to connect is still under way.
  bool is_new() const { return !ready_ && !why_not_; }
  Fault why_not() const;
  const std::shared_ptr<RedisConnection>& connection() const { return connection_; }

  CallQueue<ScriptCall> queue;
  int groups = 0;         // of calls under way
  bool gathering = false; // a timer runs until the batch delay is over
  // The partition whose marker stands for this server's memory; the same for as long as it has it.
  std::optional<std::uint32_t> marked;

 private:
  Task<void> keep();
  Task<Status> attempt();

  StoreState& store_;
  const Host host_;
  const std::uint8_t number_;
  Upkeep* upkeep_; // null once stopped
  std::shared_ptr<RedisConnection> connection_;
  bool ready_ = false;
  std::optional<Fault> why_not_;
  Backoff pauses_;
  Notice wake_; // the connection closed, or stop()
};

class Servers {
 public:
  Servers(StoreState& store, Upkeep& upkeep);

  void start();
  void stop();

  // Null while the map is not known.
  std::shared_ptr<Link> owner_of(std::uint32_t partition) const { return owners_[partition]; }
  // To the server that has the partition; else why there is none.
  Result<std::shared_ptr<RedisConnection>> connection_to(std::uint32_t partition) const;
  // Made if there is none.
  std::shared_ptr<Link> link_to(const Host& host);
  void moved(std::uint32_t partition, const Host& host);
  void refresh_soon();

  const std::map<Host, std::shared_ptr<Link>>& links() const { return links_; }
  // The links that have a partition, each once.
  std::vector<std::shared_ptr<Link>> primaries() const;
  // The partitions of each server; a fault if one of them cannot be reached.
  using Shares = std::map<std::shared_ptr<RedisConnection>, std::vector<std::uint32_t>>;
  Result<Shares> shares() const;
  // Sends a command for each partition to its server, and hands the replies over. The first fault.
  using EachCommand = std::function<std::string(std::uint32_t partition)>;
  Task<Status> on_all_partitions(EachCommand make, std::function<void(RedisReply)> reply_came);
  // The first partition that this link has, or the one it was marked with if it still has it.
  std::optional<std::uint32_t> marked_partition(Link& link) const;
  // For Store::server_of and Store::servers; from any thread.
  std::size_t number_of(std::uint32_t partition) const { return numbers_[partition].load(std::memory_order_relaxed); }
  std::size_t count() const { return count_.load(std::memory_order_relaxed); }

  // Any server can be reached; else why not.
  Status any_ready() const;
  // Waits until every server is connected. If another server than that of partition 0, which has what the whole store
  // shares, cannot be reached for a second, it goes on without: only that server's keys are refused. Ends early with a
  // fault of kind `invalid`.
  Task<Status> until_ready(MonotonicTime deadline);
  // A server to subscribe at: any that can be reached, else one of the URL's.
  Host any_host();

  StoreState& store() const { return store_; }

 private:
  Task<void> keep_map();
  Task<Status> refresh();
  Task<Status> refresh_from(std::shared_ptr<RedisConnection> connection);
  void apply(const std::vector<SlotRange>& ranges);
  void set_owner(std::uint32_t partition, const std::shared_ptr<Link>& link);
  void drop_unused();

  StoreState& store_;
  Upkeep& upkeep_;
  bool stopped_ = false;
  std::map<Host, std::shared_ptr<Link>> links_;
  std::vector<std::shared_ptr<Link>> owners_;      // by partition
  std::vector<std::atomic<std::uint8_t>> numbers_; // of those, for other threads
  std::atomic<std::size_t> count_{1};              // of different owners, no owner counted as one
  std::uint8_t next_number_ = 0;
  std::optional<Fault> no_map_; // why the map could not be had the last time
  Notice refresh_wanted_;
  std::size_t turn_ = 0; // which node to ask next, so that one with an old map does not mislead for long
};

} // namespace oncekey::redis
