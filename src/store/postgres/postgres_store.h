// PostgresStore: one store for any number of gateways, in a database people already run.
//
// Its parts: a PostgresQueue gathers calls; BatchSenders send them in batches, each batch one round trip and one
// commit; SqlBatch says how a batch is asked for and answered; the rules themselves are functions in the database
// (migrations/), so that a claim is decided where the record is, by the server's clock, under the id's lock.
// Housekeeping keeps the partitions and the marker, News hears of what other gateways have settled.
//
// Every call is made once. `unavailable` means that nothing was changed, `timeout` that the server may have committed
// what it was asked.
#pragma once

#include "base/log.h"
#include "core/sealing.h"
#include "core/store.h"
#include "store/common/store_note.h"

#include <oncekey/result.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace oncekey {

struct PostgresOptions {
  // Whatever libpq understands, with call_timeout= and connections= besides (postgres_url.h).
  std::string url;
  Log& log;
  // From the call to its answer. The URL's value counts before this one.
  Millis call_timeout{2000};
  // Each is a session of the server and a thread here. Two keep a server busy, since one commits while the other is
  // being answered; more make the batches smaller.
  int connections = 2;
  // Seals the secret; null where the store is not encrypted. Outlives the store.
  const Sealer* sealer = nullptr;

  // For tests: added to the server's time, and the clock that tells how much of it has passed since it was last heard.
  std::function<Millis()> skew = {};
  std::function<Millis()> local_clock = {};
  enum class Maintenance { in_background, by_hand } maintenance = Maintenance::in_background;
};

class PostgresStore : public Store {
 public:
  // Connects, applies missing migrations, and looks at the server. A fault says which server, what failed, what to do.
  static Result<std::unique_ptr<PostgresStore>> open(PostgresOptions options);

  // One round of upkeep now: the tick, the partitions, the measures.
  virtual Status maintain() = 0;
};

// Applies missing migrations and says which.
Status migrate_postgres(const PostgresOptions& options);

// store/open_store.h.
Status reach_postgres(const PostgresOptions& options);
// Whether the database has the store's schema. Makes nothing.
Result<bool> postgres_store_exists(const PostgresOptions& options);
Result<std::string> read_note_postgres(const PostgresOptions& options, StoreNote note);
Result<bool> write_note_postgres(const PostgresOptions& options, StoreNote note, std::string_view expected,
                                 std::string_view next);
Status reseal_secret_postgres(const PostgresOptions& options);

// The operator has looked at what was lost and says that claims may be made again.
Status accept_lost_memory_postgres(const PostgresOptions& options);

} // namespace oncekey
