#include "store/postgres/server.h"

#include "store/common/secret_check.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

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
  PostgresSettings settings;
  const std::string_view version = row.bytes(0);
  std::from_chars(version.data(), version.data() + version.size(), settings.version);
  settings.in_recovery = row.boolean(1);
  settings.read_only = row.bytes(2) == "on";
  settings.fsync = row.bytes(3);
  settings.full_page_writes = row.bytes(4);
  settings.synchronous_commit = row.bytes(5);
  settings.synchronous_standby_names = row.bytes(6);
  settings.isolation = row.bytes(7);
  return settings;
}

// Nothing if the row is gone.
Result<std::optional<MetaRow>> meta_of(const PGresult* result) {
  if (PQntuples(result) != 1) return std::optional<MetaRow>();
  const Row row(result, 0);
  MetaRow meta;
  meta.marker = {std::string(row.bytes(0)), std::string(row.bytes(1)), static_cast<std::uint64_t>(row.int8(2)),
                 row.boolean(3)};
  const std::optional<Secret> secret = checked_secret(row.bytes(4));
  if (!secret) {
    return corrupt(
        "the secret in oncekey.meta does not fit its check value: with another secret no key would be found, and every "
        "retry would be executed again. Put the row of oncekey.meta back from a backup");
  }
  meta.secret = *secret;
  meta.clock = Time{Millis{row.int8(5)}};
  return std::optional<MetaRow>(std::move(meta));
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

Fault fault_of(const Section& section, const std::string& name) {
  std::string message = fmt::format("Postgres at {}: {}", name, section.error.message);
  if (!section.error.detail.empty()) message += " (" + section.error.detail + ")";
  if (section.outcome == SectionOutcome::unknown) return Fault{FaultKind::timeout, std::move(message)};
  return unavailable(std::move(message));
}

Result<ServerSight> look_at_server(Connection& connection, const std::string& name, Deadline deadline) {
  const std::vector<Statement> sections[] = {{{kSettings, {}}}, {{kMeta, {}}}};
  const std::vector<Section> answers = connection.pipeline(sections, deadline);
  ServerSight sight;
  if (answers[0].outcome != SectionOutcome::committed) return unavailable(fault_of(answers[0], name).message);
  sight.settings = settings_of(Row(answers[0].results[0].get(), 0));
  if (answers[1].outcome == SectionOutcome::rolled_back && says_gone(answers[1].error)) return sight;
  if (answers[1].outcome != SectionOutcome::committed) return unavailable(fault_of(answers[1], name).message);
  Result<std::optional<MetaRow>> meta = meta_of(answers[1].results[0].get());
  if (!meta) return std::move(meta).fault();
  sight.meta = *std::move(meta);
  return sight;
}

void limit_session(Connection& connection, Millis longest, Deadline deadline) {
  // One after the other: a server on a system that cannot tell refuses the second, and the first should stay.
  Statement limit{"SELECT set_config('statement_timeout', $2::text, false) WHERE pg_backend_pid() = $1", {}};
  limit.params.int4(connection.backend_pid()).text(std::to_string(longest.count()));
  Statement look{"SELECT set_config('client_connection_check_interval', '1s', false) WHERE pg_backend_pid() = $1", {}};
  look.params.int4(connection.backend_pid());
  std::vector<std::vector<Statement>> sections(2);
  sections[0].push_back(std::move(limit));
  sections[1].push_back(std::move(look));
  connection.pipeline(sections, deadline);
}

Result<std::optional<MetaRow>> tick(Connection& connection, Deadline deadline) {
  const Section section = connection.run({kTick, {}}, deadline);
  if (section.outcome == SectionOutcome::rolled_back && says_gone(section.error)) return std::optional<MetaRow>{};
  if (section.outcome != SectionOutcome::committed) return unavailable(section.error.message);
  return meta_of(section.results[0].get());
}

Status mark_lost(Connection& connection, const std::string& generation, Deadline deadline) {
  Statement statement{"UPDATE oncekey.meta SET lost = true WHERE generation = $1 AND NOT lost", {}};
  statement.params.text(generation);
  const Section section = connection.run(statement, deadline);
  if (section.outcome != SectionOutcome::committed) return unavailable(section.error.message);
  return ok_status();
}

} // namespace oncekey::postgres
