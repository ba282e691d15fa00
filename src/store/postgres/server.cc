#include "store/postgres/server.h"

#include "base/crypto.h"
#include "base/durations.h"

#include <fmt/format.h>

#include <charconv>

namespace oncekey::postgres {
namespace {

constexpr const char* kSettings =
    "SELECT current_setting('server_version_num'), pg_is_in_recovery(), current_setting('transaction_read_only'), "
    "current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), "
    "current_setting('synchronous_standby_names'), current_setting('transaction_isolation')";
constexpr const char* kMeta = "SELECT generation, replaces, tick, lost, secret, oncekey.clock() FROM oncekey.meta";
constexpr const char* kTick =
    "UPDATE oncekey.meta SET tick = tick + 1 RETURNING generation, replaces, tick, lost, secret, oncekey.clock()";

PostgresSettings settings_of(const Row& row) {
  PostgresSettings settings{.in_recovery = row.boolean(1),
                            .read_only = row.bytes(2) == "on",
                            .fsync = row.text(3),
                            .full_page_writes = row.text(4),
                            .synchronous_commit = row.text(5),
                            .synchronous_standby_names = row.text(6),
                            .isolation = row.text(7)};
  const std::string_view version = row.bytes(0);
  std::from_chars(version.data(), version.data() + version.size(), settings.version);
  return settings;
}

// Nothing if the row is gone.
Result<std::optional<MetaRow>> meta_of(const PGresult* result) {
  if (PQntuples(result) != 1) return std::optional<MetaRow>();
  const Row row(result, 0);
  MetaRow meta;
  meta.marker = {row.text(0), row.text(1), row.count(2), row.boolean(3)};
  Result<KeptSecret> secret = KeptSecret::parse(row.bytes(4));
  if (!secret) return std::move(secret).fault();
  meta.secret = *std::move(secret);
  meta.clock = row.time(5);
  return std::optional<MetaRow>(std::move(meta));
}

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

Fault explained(const Connection& connection, const Section& section) {
  Fault fault = connection.fault_of(section);
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

Result<AppliedMigrations> read_applied(Connection& connection, Deadline deadline) {
  const Section section = connection.run(Statement(kApplied), deadline);
  if (section.outcome == SectionOutcome::rolled_back && says_gone(section.error)) return AppliedMigrations{};
  if (!section.committed()) return explained(connection, section);
  if (PQntuples(section.result()) == 0) return AppliedMigrations{};
  return AppliedMigrations{section.row().int4(0), section.row().int4(1)};
}

template <std::size_t Size>
std::array<std::uint8_t, Size> random_bytes() {
  std::array<std::uint8_t, Size> bytes{};
  fill_random(bytes);
  return bytes;
}

enum class Remembers { everything, nothing };

std::string new_marker(std::string_view replaces, const KeptSecret& secret, Remembers remembers) {
  return fmt::format("INSERT INTO oncekey.meta (generation, replaces, secret, lost) VALUES ('{}', '{}', '\\x{}', {})",
                     hex_encode(view_of(random_bytes<16>())), replaces, hex_encode(secret.bytes()),
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
Result<bool> apply(Connection& connection, const Migration& migration, const std::string& marker, Deadline deadline) {
  const Section section = connection.run_script(script_of(migration, marker), deadline);
  if (section.committed()) return true;
  if (section.outcome != SectionOutcome::rolled_back) return explained(connection, section);
  const Section ended = connection.run_script("ROLLBACK", deadline);
  if (!ended.committed()) return explained(connection, ended);
  if (section.error.state == "23505" && section.error.table == "migration") return false; // unique_violation
  return explained(connection, section);
}

} // namespace

Durability durability_of(const PostgresSettings& settings) {
  if (settings.synchronous_commit == "off") return Durability::none;
  if (settings.fsync != "on" || settings.full_page_writes != "on") return Durability::process;
  return Durability::power;
}

Status suitable(const PostgresSettings& settings, const std::string& name) {
  if (settings.version < kOldestServerVersion) {
    return unavailable(fmt::format("Postgres at {} is version {}; oncekey needs {} or later", name,
                                   settings.version / 10000, kOldestServerVersion / 10000));
  }
  if (settings.in_recovery) {
    return unavailable(fmt::format(
        "Postgres at {} is a standby (in recovery) and takes no writes; name the primary, or name several hosts",
        name));
  }
  if (settings.read_only) {
    return unavailable(fmt::format(
        "Postgres at {} takes no writes from us: default_transaction_read_only is on for this role or database", name));
  }
  if (settings.isolation != "read committed") {
    return unavailable(
        fmt::format("Postgres at {} runs our transactions as \"{}\": set default_transaction_isolation = "
                    "'read committed' for the role oncekey logs in with",
                    name, settings.isolation));
  }
  return ok_status();
}

bool says_gone(const SqlError& error) {
  // undefined_table, undefined_function, invalid_schema_name
  return error.state == "42P01" || error.state == "42883" || error.state == "3F000";
}

Result<ServerSight> look_at_server(Connection& connection, Deadline deadline) {
  const std::vector<Statement> sections[] = {{Statement(kSettings)}, {Statement(kMeta)}};
  const std::vector<Section> answers = connection.pipeline(sections, deadline);
  ServerSight sight;
  if (!answers[0].committed()) return unavailable(connection.fault_of(answers[0]).message);
  sight.settings = settings_of(answers[0].row());
  if (answers[1].outcome == SectionOutcome::rolled_back && says_gone(answers[1].error)) return sight;
  if (!answers[1].committed()) return unavailable(connection.fault_of(answers[1]).message);
  Result<std::optional<MetaRow>> meta = meta_of(answers[1].result());
  if (!meta) return std::move(meta).fault();
  sight.meta = *std::move(meta);
  return sight;
}

bool limit_session(Connection& connection, Millis longest, Deadline deadline) {
  // One after the other: a server on a system that cannot tell refuses the second, and the first should stay.
  const std::vector<Statement> sections[] = {
      {Statement("SELECT set_config('statement_timeout', $2::text, false) WHERE pg_backend_pid() = $1",
                 connection.backend_pid(), std::to_string(longest.count()))},
      {Statement("SELECT set_config('client_connection_check_interval', '1s', false) WHERE pg_backend_pid() = $1",
                 connection.backend_pid())}};
  const std::vector<Section> set = connection.pipeline(sections, deadline);
  return set.front().committed() && PQntuples(set.front().result()) == 1;
}

Result<std::optional<MetaRow>> tick(Connection& connection, Deadline deadline) {
  const Section section = connection.run(Statement(kTick), deadline);
  if (section.outcome == SectionOutcome::rolled_back && says_gone(section.error)) return std::optional<MetaRow>{};
  if (!section.committed()) return unavailable(section.error.message);
  return meta_of(section.result());
}

Status mark_lost(Connection& connection, const std::string& generation, Deadline deadline) {
  const Section section = connection.run(
      Statement("UPDATE oncekey.meta SET lost = true WHERE generation = $1 AND NOT lost", generation), deadline);
  if (!section.committed()) return unavailable(section.error.message);
  return ok_status();
}

std::span<const Migration> migrations() { return kMigrations; }

Status can_work_on(const AppliedMigrations& applied, int known) {
  if (applied.newest <= known || applied.compatible_from <= known) return ok_status();
  return Fault{
      FaultKind::newer_format,
      fmt::format("the schema oncekey in Postgres was migrated to number {} by a newer oncekey, and this version knows "
                  "numbers up to {}: run that version, or one that knows number {} at least",
                  applied.newest, known, applied.compatible_from)};
}

Result<bool> has_schema(Connection& connection, Deadline deadline) {
  const Result<AppliedMigrations> applied = read_applied(connection, deadline);
  if (!applied) return applied.fault();
  return applied->newest > 0;
}

Status migrate(Connection& connection, Log& log, const Sealer* sealer) {
  const Result<AppliedMigrations> applied = read_applied(connection, deadline_in(kStatementTime));
  if (!applied) return applied.fault();
  if (const Status can = can_work_on(*applied, migrations().back().number); !can) return can;
  const std::string marker = new_marker("", KeptSecret(random_bytes<32>(), sealer), Remembers::everything);
  for (const Migration& migration : migrations()) {
    if (migration.number <= applied->newest) continue;
    const Millis patience = migration.number == 1 ? kFirstMigrationTime : kMigrationTime;
    log.info("migrating", {{"store", connection.name()},
                           {"number", migration.number},
                           {"name", migration.name},
                           {"gives_up_after", format_duration(patience)}});
    const Result<bool> done = apply(connection, migration, marker, deadline_in(patience));
    if (!done) return done.fault();
    if (*done)
      log.info("migrated", {{"store", connection.name()}, {"number", migration.number}, {"name", migration.name}});
  }
  return ok_status();
}

Status make_lost_schema(Connection& connection, const KeptSecret& secret, Deadline deadline) {
  const Result<AppliedMigrations> applied = read_applied(connection, deadline);
  if (!applied) return applied.fault();
  if (applied->newest > 0) return ok_status(); // without its marker no gateway opens it
  const std::string marker = new_marker("", secret, Remembers::nothing);
  for (const Migration& migration : migrations()) {
    const Result<bool> done = apply(connection, migration, marker, deadline);
    if (!done) return done.fault();
  }
  return ok_status();
}

Status reseal(Connection& connection, const KeptSecret& seen, const KeptSecret& next, Deadline deadline) {
  const Section section =
      connection.run(Statement("UPDATE oncekey.meta SET secret = $2 WHERE secret = $1",
                               Bytea<std::string_view>{seen.bytes()}, Bytea<std::string_view>{next.bytes()}),
                     deadline);
  if (!section.committed()) return unavailable(section.error.message);
  return ok_status();
}

Result<std::string> read_note(Connection& connection, StoreNote note) {
  const Section section = connection.run(Statement("SELECT value FROM oncekey.note WHERE name = $1", name_of(note)),
                                         deadline_in(kStatementTime));
  if (!section.committed()) return explained(connection, section);
  if (PQntuples(section.result()) == 0) return std::string();
  return section.row().text(0);
}

Result<bool> write_note(Connection& connection, StoreNote note, std::string_view expected, std::string_view next) {
  // An empty note is one that is not there yet.
  const char* const sql =
      expected.empty()
          ? "INSERT INTO oncekey.note (name, value) SELECT $1, $3 WHERE $2::bytea = '' "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE oncekey.note.value = '' RETURNING 1"
          : "UPDATE oncekey.note SET value = $3 WHERE name = $1 AND value = $2 RETURNING 1";
  const Section section =
      connection.run(Statement(sql, name_of(note), Bytea{expected}, Bytea{next}), deadline_in(kStatementTime));
  if (!section.committed()) return explained(connection, section);
  return PQntuples(section.result()) == 1;
}

Status accept_loss(Connection& connection) {
  // The secret stays where there is one: ids made with it are still in the table. Without a timeline the next claim
  // moves the counter of fences on.
  const std::string sql = fmt::format(
      "{} ON CONFLICT (only_row) DO UPDATE SET generation = excluded.generation, replaces = excluded.replaces, "
      "lost = false, tick = 0, timeline = ''",
      new_marker(kReplacesAny, KeptSecret(random_bytes<32>(), nullptr), Remembers::everything));
  const Section section = connection.run_script(sql, deadline_in(kStatementTime));
  if (!section.committed()) return explained(connection, section);
  return ok_status();
}

} // namespace oncekey::postgres
