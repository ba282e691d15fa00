// server: what kind of server this is, whether it is still the one we know, and how our schema gets there.
//
// Migrations are numbered, each is applied in a transaction of its own under a lock, and a gateway that opens a store
// applies what is missing. Binaries of two versions may share a store: a newer one says with each migration which older
// binaries can go on (`compatible_from`), and an older one that finds itself shut out says so and does not start.
#pragma once

#include "base/log.h"
#include "core/store.h"
#include "store/common/marker_keeper.h"
#include "store/common/store_note.h"
#include "store/postgres/connection.h"

#include <oncekey/result.h>

namespace oncekey::postgres {

// The oldest that is still maintained by its makers.
inline constexpr int kOldestServerVersion = 140000;

// The settings that matter, as they are in effect for our role and database.
struct PostgresSettings {
  int version = 0; // as in server_version_num
  bool in_recovery = false;
  bool read_only = false;
  std::string fsync;
  std::string full_page_writes;
  std::string synchronous_commit;
  std::string synchronous_standby_names;
  std::string isolation;
};

// How much of what was answered survives.
//
// `power` needs the log to be flushed before a commit is answered and torn pages to be mended. All values of
// synchronous_commit but `off` wait for the local flush; they differ in what they ask of standbys beyond it.
// Without fsync, or with full_page_writes off, a commit is written to the operating system before it is answered: a
// killed server loses nothing, a power cut may.
// With synchronous_commit = off a commit is answered while it is in the server's memory alone: a kill -9 of the server
// loses the last half second, so nothing is promised.
Durability durability_of(const PostgresSettings& settings);

// A fault that says why a store cannot be kept there.
Status suitable(const PostgresSettings& settings, const std::string& name);

// The row of oncekey.meta.
struct MetaRow : SharedStoreMeta {
  Time clock{}; // the server's, when it was read
};

// What claims are made on the strength of: the generation, and the largest tick that was seen of it.
struct KnownMarker {
  std::string generation;
  std::uint64_t tick = 0;
};

struct ServerSight {
  PostgresSettings settings;
  std::optional<MetaRow> meta; // nothing if it is gone
};

// Asks for everything, in one round trip. A fault of kind unavailable if the server did not answer.
Result<ServerSight> look_at_server(Connection& connection, Deadline deadline);

// Lets the server end by itself what no caller waits for any more: statements that last longer than `longest`, and,
// where it can tell, those whose client is gone. For gateways that were killed, and for when a cancellation does not
// arrive. Does nothing behind a pooler, whose sessions are lent to others, and a server that cannot is left as it is.
// True if the session is this connection's alone.
bool limit_session(Connection& connection, Millis longest, Deadline deadline);

// Counts the tick up and returns the marker as it is then; nothing if it is gone.
Result<std::optional<MetaRow>> tick(Connection& connection, Deadline deadline);

// So that gateways that start from now on refuse as well. Only the marker of that generation is touched: a newer one
// was written by an operator who has accepted the loss.
Status mark_lost(Connection& connection, const std::string& generation, Deadline deadline);

// Whether the error means that our schema, or part of it, is not there.
bool says_gone(const SqlError& error);

struct Migration {
  int number;
  const char* name;
  // The lowest number a binary must know of to work on a store that has this migration.
  int compatible_from;
  const char* sql;
};

std::span<const Migration> migrations();

// What has been applied: the newest, and the number it asks of binaries. Zeros for an empty database.
struct AppliedMigrations {
  int newest = 0;
  int compatible_from = 0;
};

// Whether a binary that knows migrations up to `known` can work there. A fault says what to do.
Status can_work_on(const AppliedMigrations& applied, int known);

// Whether any migration has been applied.
Result<bool> has_schema(Connection& connection, Deadline deadline);

// Applies what is missing. The first one also makes the store's marker and secret.
Status migrate(Connection& connection, Log& log, const Sealer* sealer);

// Makes everything anew where it is gone, with the secret there was and a marker that says that memory was lost:
// gateways that open the store from now on refuse claims until an operator has accepted the loss. Keeps what is there.
Status make_lost_schema(Connection& connection, const KeptSecret& secret, Deadline deadline);

// Keeps the secret as `next`, if it is still kept as it was seen.
Status reseal(Connection& connection, const KeptSecret& seen, const KeptSecret& next, Deadline deadline);

// read_store_note() and write_store_note() (store/open_store.h).
Result<std::string> read_note(Connection& connection, StoreNote note);
Result<bool> write_note(Connection& connection, StoreNote note, std::string_view expected, std::string_view next);

// Writes a marker that makes up for whatever was lost. The schema must be there.
Status accept_loss(Connection& connection);

} // namespace oncekey::postgres
