// Worker: one connection and the thread that serves calls over it.
//
// It takes whatever waits as its next batch, asks for all of it in one round trip and one commit, and answers. While it
// does so the next batch gathers. A server that is gone is tried again with growing pauses; meanwhile calls are refused
// at once.
#pragma once

#include "base/backoff.h"
#include "store/postgres/exchange.h"
#include "store/postgres/shared.h"

#include <memory>
#include <thread>

namespace oncekey::postgres {

class Worker {
 public:
  explicit Worker(Shared& shared);
  // After shared.stop() and queue.close().
  ~Worker();

 private:
  void run();
  bool connect();
  void disconnect();
  void serve(Batch batch);
  void settle_writes(Exchange& exchange, const Section& section, Outbox& outbox);
  // True if asking again may work now.
  bool mend(Exchange& exchange, const SqlError& error, Outbox& outbox);
  bool make_partition(std::int64_t bucket);

  Shared& shared_;
  std::unique_ptr<Connection> connection_;
  Backoff backoff_;
  std::thread thread_;
};

// The bucket that "no partition of relation found for row" is about, out of the error's detail.
std::optional<std::int64_t> missing_bucket(const SqlError& error);

} // namespace oncekey::postgres
