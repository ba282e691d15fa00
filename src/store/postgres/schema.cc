#include "store/postgres/schema.h"

#include "base/crypto.h"
#include "base/durations.h"
#include "store/common/secret_check.h"
#include "store/postgres/server.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace oncekey::postgres {
namespace {

// clang-format off
constexpr Migration kMigrations[] = {
    {1, "records", 1,
#include "store/postgres/migrations/0001_records.sql"
    },
};
// clang-format on

// A migration may rewrite a large table; gateways that start meanwhile wait as long. The first one only makes
// what is empty: where that lasts, it is the commit that waits, for a standby that is not there.
constexpr Millis kMigrationTime{600'000};
constexpr Millis kFirstMigrationTime{30'000};
// Everything that is no migration is as quick as any call, or hangs.
constexpr Millis kStatementTime{10'000};
// An arbitrary number that only migrations use.
constexpr const char* kLock = "SELECT pg_advisory_xact_lock(7813586407151233)";

constexpr const char* kApplied = "SELECT number, compatible_from FROM oncekey.migration ORDER BY number DESC LIMIT 1";

Fault explained(const Section& section, const std::string& name) {
  Fault fault = fault_of(section, name);
  if (section.error.state == "42501") { // insufficient_privilege
    fault.message += fmt::format(
        ". The role oncekey logs in with must own the schema \"oncekey\" and what is in it: let an administrator run "
        "CREATE SCHEMA oncekey AUTHORIZATION the_role, or GRANT CREATE ON DATABASE the_database TO the_role");
  }
  if (section.outcome == SectionOutcome::unknown) {
    fault.message +=
        ". Another session may hold a lock in the schema \"oncekey\", or commits wait for a standby that is not there "
        "(synchronous_standby_names)";
  }
  return fault;
}

Result<AppliedMigrations> read_applied(Connection& connection, const std::string& name, Deadline deadline) {
  const Section section = connection.run({kApplied, {}}, deadline);
  if (section.outcome == SectionOutcome::rolled_back && says_gone(section.error)) return AppliedMigrations{};
  if (section.outcome != SectionOutcome::committed) return explained(section, name);
  const PGresult* const result = section.results[0].get();
  if (PQntuples(result) == 0) return AppliedMigrations{};
  return AppliedMigrations{Row(result, 0).int4(0), Row(result, 0).int4(1)};
}

std::string hex_of(std::span<const std::uint8_t> bytes) {
  std::string hex;
  for (const std::uint8_t byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

Secret new_secret() {
  Secret secret{};
  fill_random(secret);
  return secret;
}

std::string new_generation() {
  std::array<std::uint8_t, 16> bytes{};
  fill_random(bytes);
  return hex_of(bytes);
}

enum class Remembers { everything, nothing };

std::string new_marker(std::string_view replaces, const Secret& secret, Remembers remembers) {
  return fmt::format("INSERT INTO oncekey.meta (generation, replaces, secret, lost) VALUES ('{}', '{}', '\\x{}', {})",
                     new_generation(), replaces, hex_encode(secret_with_check(secret)),
                     remembers == Remembers::nothing);
}

// The script of one migration. The lock lets one in at a time, and the second gateway finds it applied and stops at
// the unique number: nothing is applied twice, whatever the order. `marker` is what the first one ends with.
std::string script_of(const Migration& migration, const std::string& marker) {
  std::string script = fmt::format("BEGIN; {};\n", kLock);
  if (migration.number == 1) {
    // Not IF NOT EXISTS for the schema: that needs the right to create one even where it is there.
    script +=
        "DO $$ BEGIN IF to_regnamespace('oncekey') IS NULL THEN CREATE SCHEMA oncekey; END IF; END $$;\n"
        "CREATE TABLE IF NOT EXISTS oncekey.migration (number int4 PRIMARY KEY, name text NOT NULL, "
        "compatible_from int4 NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());\n";
  }
  script += fmt::format("INSERT INTO oncekey.migration (number, name, compatible_from) VALUES ({}, '{}', {});\n",
                        migration.number, migration.name, migration.compatible_from);
  script += migration.sql;
  if (migration.number == 1) script += marker + ";\n";
  return script + "COMMIT;";
}

// True if it was applied now, false if another gateway was first.
Result<bool> apply(Connection& connection, const Migration& migration, const std::string& marker,
                   const std::string& name, Deadline deadline) {
  const Section section = connection.run_script(script_of(migration, marker), deadline);
  if (section.outcome == SectionOutcome::committed) return true;
  if (section.outcome != SectionOutcome::rolled_back) return explained(section, name);
  const Section ended = connection.run_script("ROLLBACK", deadline);
  if (ended.outcome != SectionOutcome::committed) return explained(ended, name);
  if (section.error.state == "23505" && section.error.table == "migration") return false; // unique_violation
  return explained(section, name);
}

} // namespace

std::span<const Migration> migrations() { return kMigrations; }

Status can_work_on(const AppliedMigrations& applied, int known) {
  if (applied.newest <= known || applied.compatible_from <= known) return ok_status();
  return Fault{
      FaultKind::newer_format,
      fmt::format("the store was migrated by a newer oncekey (to number {}, this one knows {}) that older ones "
                  "cannot work with; run a version that knows number {} at least",
                  applied.newest, known, applied.compatible_from)};
}

Status migrate(Connection& connection, const std::string& name, Log& log) {
  const Result<AppliedMigrations> applied = read_applied(connection, name, deadline_in(kStatementTime));
  if (!applied) return applied.fault();
  if (const Status can = can_work_on(*applied, migrations().back().number); !can) return can;
  const std::string marker = new_marker("", new_secret(), Remembers::everything);
  for (const Migration& migration : migrations()) {
    if (migration.number <= applied->newest) continue;
    const Millis patience = migration.number == 1 ? kFirstMigrationTime : kMigrationTime;
    log.info("migrating", {{"store", name},
                           {"number", migration.number},
                           {"name", migration.name},
                           {"gives_up_after", format_duration(patience)}});
    const Result<bool> done = apply(connection, migration, marker, name, deadline_in(patience));
    if (!done) return done.fault();
    if (*done) log.info("migrated", {{"store", name}, {"number", migration.number}, {"name", migration.name}});
  }
  return ok_status();
}

Status make_lost_schema(Connection& connection, const std::string& name, const Secret& secret, Deadline deadline) {
  const Result<AppliedMigrations> applied = read_applied(connection, name, deadline);
  if (!applied) return applied.fault();
  if (applied->newest > 0) return ok_status(); // without its marker no gateway opens it
  const std::string marker = new_marker("", secret, Remembers::nothing);
  for (const Migration& migration : migrations()) {
    const Result<bool> done = apply(connection, migration, marker, name, deadline);
    if (!done) return done.fault();
  }
  return ok_status();
}

Result<std::string> read_identity_note(Connection& connection, const std::string& name) {
  const Section section = connection.run({"SELECT identity FROM oncekey.meta", {}}, deadline_in(kStatementTime));
  if (section.outcome != SectionOutcome::committed) return explained(section, name);
  const PGresult* const result = section.results[0].get();
  if (PQntuples(result) == 0) return std::string(); // the marker is gone, which the store says itself
  return std::string(Row(result, 0).bytes(0));
}

Result<bool> write_identity_note(Connection& connection, const std::string& name, std::string_view expected,
                                 std::string_view next) {
  Params params;
  params.bytes(expected).bytes(next);
  const Section section =
      connection.run({"UPDATE oncekey.meta SET identity = $2 WHERE identity = $1 RETURNING 1", std::move(params)},
                     deadline_in(kStatementTime));
  if (section.outcome != SectionOutcome::committed) return explained(section, name);
  return PQntuples(section.results[0].get()) == 1;
}

Status accept_loss(Connection& connection, const std::string& name) {
  // The secret stays where there is one: ids made with it are still in the table. Without a timeline the next claim
  // moves the counter of fences on.
  const std::string sql = fmt::format(
      "{} ON CONFLICT (only_row) DO UPDATE SET generation = excluded.generation, replaces = excluded.replaces, "
      "lost = false, tick = 0, timeline = ''",
      new_marker(kReplacesAny, new_secret(), Remembers::everything));
  const Section section = connection.run_script(sql, deadline_in(kStatementTime));
  if (section.outcome != SectionOutcome::committed) return explained(section, name);
  return ok_status();
}

} // namespace oncekey::postgres
