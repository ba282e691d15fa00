// Servers: the links to all servers of a store, and which of them has which partition.
//
// A single server has all of them. In a cluster the map comes from any node that can be reached, and is asked for again
// when a node says that a slot has moved, when a connection is lost, and every few seconds.
//
// Used on the loop's thread alone, except where said otherwise.
#pragma once

#include "store/redis/link.h"
#include "store/redis/slots.h"

#include "core/store.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace oncekey::redis {

class Servers {
 public:
  Servers(Loop& loop, const RedisUrl& url, const ConnectionOptions& options, Millis call_timeout, const KeyNames& names,
          LinkOwner& owner);

  void start();
  void stop();

  // Null while the map is not known.
  std::shared_ptr<Link> owner_of(std::uint32_t partition) const { return owners_[partition]; }
  // Made if there is none.
  std::shared_ptr<Link> link_to(const Host& host);
  // Null if there is none.
  std::shared_ptr<Link> find_link(const Host& host) const;
  void moved(std::uint32_t partition, const Host& host);
  void refresh_soon();

  const std::map<Host, std::shared_ptr<Link>>& links() const { return links_; }
  // The links that have a partition, each once.
  std::vector<std::shared_ptr<Link>> primaries() const;
  // The first partition that this link has, or the one it was marked with if it still has it.
  std::optional<std::uint32_t> marked_partition(Link& link) const;
  // For Store::server_of and Store::servers; from any thread.
  std::size_t number_of(std::uint32_t partition) const { return numbers_[partition].load(std::memory_order_relaxed); }
  std::size_t count() const { return count_.load(std::memory_order_relaxed); }

  // The server of partition 0 can be reached, which has what the whole store shares; else why not.
  Status first_ready() const;
  // Any server can be reached; else why not.
  Status any_ready() const;
  // Waits until every server is connected. If another server than that of partition 0 cannot be reached for a second,
  // it goes on without: only that server's keys are refused. Ends early with a fault of kind `invalid`.
  Task<Status> until_ready(MonotonicTime deadline);
  // A server to subscribe at: any that can be reached, else one of the URL's.
  Host any_host();

 private:
  Task<void> keep_map();
  Task<Status> refresh();
  Task<Status> refresh_from(std::shared_ptr<RedisConnection> connection);
  void apply(const std::vector<SlotRange>& ranges);
  void set_owner(std::uint32_t partition, const std::shared_ptr<Link>& link);
  Status all_ready() const;
  Fault no_map() const;
  void drop_unused();

  Loop& loop_;
  const RedisUrl& url_;
  const ConnectionOptions& options_;
  const Millis call_timeout_;
  const KeyNames& names_;
  LinkOwner& owner_;
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
