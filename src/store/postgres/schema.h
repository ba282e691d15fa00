// schema: the tables and functions in the database, and how they get there.
//
// Migrations are numbered, each is applied in a transaction of its own under a lock, and a gateway that opens a store
// applies what is missing. Binaries of two versions may share a store: a newer one says with each migration which older
// binaries can go on (`compatible_from`), and an older one that finds itself shut out says so and does not start.
#pragma once

#include "base/log.h"
#include "store/postgres/connection.h"

#include <oncekey/result.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace oncekey::postgres {

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

// Applies what is missing. The first one also makes the store's marker and secret.
Status migrate(Connection& connection, const std::string& name, Log& log);

// Makes everything anew where it is gone, with the secret there was and a marker that says that memory was lost:
// gateways that open the store from now on refuse claims until an operator has accepted the loss. Keeps what is there.
Status make_lost_schema(Connection& connection, const std::string& name, const std::array<std::uint8_t, 32>& secret,
                        Deadline deadline);

// The text of read_identity_note() and write_identity_note() (store/open_store.h).
Result<std::string> read_identity_note(Connection& connection, const std::string& name);
Result<bool> write_identity_note(Connection& connection, const std::string& name, std::string_view expected,
                                 std::string_view next);

// Writes a marker that makes up for whatever was lost. The schema must be there.
Status accept_loss(Connection& connection, const std::string& name);

} // namespace oncekey::postgres
