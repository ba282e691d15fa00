// PostgresState: what the threads of a Postgres store share.
#pragma once

#include "store/common/server_clock.h"
#include "store/postgres/postgres_queue.h"
#include "store/postgres/server.h"

#include <functional>
#include <map>
#include <unordered_map>

namespace oncekey::postgres {

// Ids that requests of this process wait for. A request that still waits looks again before its entry ends.
class AwaitedIds {
 public:
  void add(const std::vector<RecordId>& ids);
  void remove(const RecordId& id);
  // Those whose time is not over; the others are forgotten.
  std::vector<RecordId> current();

 private:
  std::mutex mutex_;
  std::unordered_map<RecordId, Deadline> ids_;
};

class PostgresState {
 public:
  PostgresState(Log& to_log, PostgresTarget server, Millis timeout, std::function<Millis()> server_skew,
                std::function<Millis()> local_clock, const Sealer* sealer)
      : log(to_log),
        target(std::move(server)),
        call_timeout(timeout),
        skew(std::move(server_skew)),
        marker(log, target.name, sealer),
        clock(std::move(local_clock)) {}

  Log& log;
  const PostgresTarget target;
  const Millis call_timeout;
  const std::function<Millis()> skew;
  PostgresQueue queue;
  MarkerKeeper marker;
  ServerClock clock;
  AwaitedIds awaited;
  std::atomic<Durability> durability = Durability::none;
  std::atomic<std::uint64_t> batches = 0;
  std::atomic<std::uint64_t> written = 0;

  // The marker as it was when the store last remembered everything.
  KnownMarker known_marker() const;

  Result<std::unique_ptr<Connection>> open_connection() const {
    return Connection::open(target, deadline_in(call_timeout), stopping_);
  }
  // Looks at the server over a fresh connection, before anything else is asked on it. A fault if it must not be used.
  // That memory was lost is no such fault: owners may finish, and may_claim() says it.
  Status admit(Connection& connection);
  // Counts the marker's tick up and looks at what it is.
  Status count_tick(Connection& connection);

  // How many senders have a connection decides whether calls may wait for one.
  void connected();
  void disconnected();
  void cannot_connect(const Fault& fault);

  void claimed_with(Millis retention);
  // The longest retention claimed so far in each class of bucket widths: tells which partitions are needed next.
  std::map<int, Millis> retentions() const;

  void announce_to(Store::Listener listener);
  void announce(const std::optional<RecordId>& settled) const;

  const std::atomic<bool>& stopping() const { return stopping_; }
  void stop();
  // False when the store is being closed.
  bool sleep(Millis duration);

 private:
  // The marker as it was just read. Tells the other gateways if it shows a loss.
  void see(Connection& connection, const std::optional<MetaRow>& meta);

  // Held from the reading of a marker until it has been looked at: two threads that looked in another order than they
  // read would take an older tick for one that went back.
  std::mutex marker_mutex_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  std::atomic<bool> stopping_ = false;
  int connected_ = 0;
  KnownMarker known_marker_;
  std::map<int, Millis> retentions_;
  Store::Listener listener_;
};

} // namespace oncekey::postgres
