// BatchSender: one connection and the thread that serves calls over it.
//
// It takes whatever waits as its next batch, asks for all of it in one round trip and one commit, and answers. While it
// does so the next batch gathers. A server that is gone is tried again with growing pauses; meanwhile calls are refused
// at once.
#pragma once

#include "base/backoff.h"
#include "store/postgres/sql_batch.h"

#include <thread>

namespace oncekey::postgres {

class BatchSender {
 public:
  explicit BatchSender(PostgresState& state);
  // After state.stop() and queue.close().
  ~BatchSender();

 private:
  void run();
  bool connect();
  void disconnect();
  void serve(CallBatch batch);
  void settle_writes(SqlBatch& sql, const Section& section);
  // True if asking again may work now.
  bool mend(SqlBatch& sql, const SqlError& error);
  bool make_partition(std::int64_t bucket);

  PostgresState& state_;
  std::unique_ptr<Connection> connection_;
  Backoff backoff_;
  std::thread thread_;
};

// The bucket that "no partition of relation found for row" is about, out of the error's detail.
std::optional<std::int64_t> missing_bucket(const SqlError& error);

} // namespace oncekey::postgres
