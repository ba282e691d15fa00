#include "phases/sqlite_session.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <thread>

namespace oncekey::phases {
namespace {

// Statements name buckets, which come and go. At this many, all prepared statements are dropped, the old ones with
// them.
constexpr std::size_t kSqlitePreparedMax = 256;

constexpr std::size_t kSqliteValuesMax = 100;

// The pause between two looks while another process writes: long enough not to spin, short compared with a sync.
Millis busy_pause() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return Millis{std::uniform_int_distribution<int>(1, 4)(random)};
}

int bind_value(sqlite3_stmt* statement, int at, const SqlValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return sqlite3_bind_int64(statement, at, *number);
  if (const auto* real = std::get_if<double>(&value)) return sqlite3_bind_double(statement, at, *real);
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    return sqlite3_bind_text64(statement, at, text->data() ? text->data() : "", text->size(), SQLITE_STATIC,
                               SQLITE_UTF8);
  }
  if (const auto* bytes = std::get_if<Bytes>(&value)) {
    const char* const data = bytes->bytes.data() ? bytes->bytes.data() : ""; // null would bind NULL
    return sqlite3_bind_blob64(statement, at, data, bytes->bytes.size(), SQLITE_STATIC);
  }
  return sqlite3_bind_null(statement, at);
}

// The name of a value, "$1" for the first.
const char* value_name(std::size_t index) {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (std::size_t i = 1; i <= kSqliteValuesMax; ++i) names.push_back(fmt::format("${}", i));
    return names;
  }();
  return kNames[index].c_str();
}

int bind_all(sqlite3_stmt* statement, std::span<const SqlValue> values) {
  if (values.size() > kSqliteValuesMax) return SQLITE_RANGE;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int at = sqlite3_bind_parameter_index(statement, value_name(i));
    if (at == 0) continue; // a value the statement does not use in this dialect
    if (const int code = bind_value(statement, at, values[i]); code != SQLITE_OK) return code;
  }
  return SQLITE_OK;
}

// Why the values do not fit the statement's parameters, or nothing. SQLite would bind NULL to a missing value and
// ignore a surplus one.
std::optional<std::string> values_do_not_fit(sqlite3_stmt* statement, std::size_t given) {
  if (given > kSqliteValuesMax) return fmt::format("{} values were given, {} are possible", given, kSqliteValuesMax);
  for (std::size_t i = 0; i < given; ++i) {
    if (sqlite3_bind_parameter_index(statement, value_name(i)) == 0) {
      return fmt::format("{} values were given and {} is not used", given, value_name(i));
    }
  }
  // All of $1, $2, … are there: any further one has no value.
  if (sqlite3_bind_parameter_count(statement) > static_cast<int>(given)) {
    return fmt::format("{} values were given for {} parameters, which are written $1, $2, …", given,
                       sqlite3_bind_parameter_count(statement));
  }
  return std::nullopt;
}

SqlColumn sqlite_column(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return std::int64_t{sqlite3_column_int64(statement, column)};
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return nullptr;
    default: {
      const auto* const bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
      const int length = sqlite3_column_bytes(statement, column);
      return bytes ? std::string(bytes, static_cast<std::size_t>(length)) : std::string();
    }
  }
}

SqlRow::Names sqlite_names(sqlite3_stmt* statement) {
  auto names = std::make_shared<std::vector<std::string>>();
  const int count = sqlite3_column_count(statement);
  for (int i = 0; i < count; ++i) {
    const char* const name = sqlite3_column_name(statement, i);
    names->emplace_back(name ? name : "");
  }
  return names;
}

SqlRow sqlite_row(sqlite3_stmt* statement, const SqlRow::Names& names) {
  const int count = sqlite3_column_count(statement);
  std::vector<SqlColumn> columns;
  columns.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) columns.push_back(sqlite_column(statement, i));
  return SqlRow(std::move(columns), names);
}

FaultKind sqlite_kind(int code) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return FaultKind::conflict;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return FaultKind::corrupt;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_NOMEM:
      return FaultKind::unavailable;
    default:
      return FaultKind::invalid;
  }
}

} // namespace

bool WriterTurn::take(Millis wait_max) {
  std::unique_lock lock(mutex_);
  if (!free_.wait_for(lock, wait_max, [&] { return !taken_; })) return false;
  taken_ = true;
  return true;
}

void WriterTurn::give() {
  const std::lock_guard lock(mutex_);
  taken_ = false;
  free_.notify_one();
}

SqliteSession::~SqliteSession() {
  if (have_turn_) rollback();
  prepared_.clear();
  if (owner_ == HandleOwner::library) sqlite3_close_v2(handle_);
}

Fault SqliteSession::fault(std::string_view sql) {
  const int code = sqlite3_extended_errcode(handle_);
  error_code_ = fmt::format("{}", code);
  const std::string_view message = sqlite3_errmsg(handle_);
  const bool missing = message.starts_with("no such table: ");
  return {sqlite_kind(code), fmt::format("SQLite: {} ({}) in: {}{}", message, code, sql.substr(0, 200),
                                         missing ? migrate_hint(message) : "")};
}

Status SqliteSession::simple(std::string_view sql) {
  observe(StatementMoment::before, sql);
  const int code = sqlite3_exec(handle_, std::string(sql).c_str(), nullptr, nullptr, nullptr);
  observe(StatementMoment::after, sql);
  if (code != SQLITE_OK) return fault(sql);
  if (state() == TransactionState::none) end_turn();
  return ok_status();
}

Result<SqliteStatement> SqliteSession::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const char* rest = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                      &statement, &rest);
  SqliteStatement prepared(statement);
  if (code != SQLITE_OK) return fault(sql);
  if (!statement) return misused("no statement", sql);
  if (!only_comments({rest, static_cast<std::size_t>(sql.data() + sql.size() - rest)})) {
    return misused("more than one statement", sql);
  }
  return prepared;
}

// Whether SQLite finds no statement in the text: blanks and comments behind the first one are allowed.
bool SqliteSession::only_comments(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()), 0, &statement, nullptr);
  const SqliteStatement owner(statement);
  return code == SQLITE_OK && !statement;
}

Fault SqliteSession::misused(std::string_view what, std::string_view sql) {
  error_code_ = fmt::format("{}", SQLITE_MISUSE);
  return invalid(fmt::format("{} in: {}", what, sql.substr(0, 200)));
}

Result<SqlRows> SqliteSession::step_all(sqlite3_stmt* statement, std::span<const SqlValue> values, std::string_view sql,
                                        ColumnNames wanted) {
  observe(StatementMoment::before, sql);
  SqlRows rows;
  SqlRow::Names names;
  int code = bind_all(statement, values);
  while (code == SQLITE_OK || code == SQLITE_ROW) {
    code = sqlite3_step(statement);
    if (code != SQLITE_ROW) continue;
    if (wanted == ColumnNames::wanted && !names) names = sqlite_names(statement);
    rows.rows.push_back(sqlite_row(statement, names));
  }
  if (code == SQLITE_DONE && !sqlite3_stmt_readonly(statement)) rows.changed = sqlite3_changes64(handle_);
  std::optional<Fault> failed;
  if (code != SQLITE_DONE) failed = fault(sql);
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  observe(StatementMoment::after, sql);
  if (failed) return std::move(*failed);
  return rows;
}

Result<SqlRows> SqliteSession::run_prepared(const Command& command) {
  auto known = prepared_.find(std::string(command.sql));
  if (known == prepared_.end()) {
    auto prepared = prepare(in_dialect(command.sql, Dialect::sqlite, options_.clock_ahead));
    if (!prepared.ok()) return std::move(prepared).fault();
    if (prepared_.size() >= kSqlitePreparedMax) prepared_.clear();
    known = prepared_.emplace(command.sql, std::move(prepared).value()).first;
  }
  return step_all(known->second.get(), command.values, command.sql, ColumnNames::not_wanted);
}

Result<std::vector<SqlRows>> SqliteSession::run(std::span<const Command> commands) {
  std::vector<SqlRows> all;
  all.reserve(commands.size());
  for (const Command& command : commands) {
    auto rows = run_prepared(command);
    if (!rows.ok()) return std::move(rows).fault();
    if (command.changes == Changes::exactly_one && rows->changed != 1) {
      return invalid("the application's code changed the library's own row");
    }
    all.push_back(std::move(rows).value());
  }
  if (state() == TransactionState::none) end_turn();
  return all;
}

// First the queue of this process, then the lock of the file, both within wait_max.
Status SqliteSession::lock_writer() {
  const auto deadline = std::chrono::steady_clock::now() + options_.wait_max;
  if (!turn_.take(options_.wait_max)) {
    return Fault{FaultKind::conflict, "another thread has been writing to the database for too long"};
  }
  have_turn_ = true;
  for (;;) {
    auto begun = simple("BEGIN IMMEDIATE");
    if (begun.ok()) return begun;
    if (begun.fault().kind != FaultKind::conflict || std::chrono::steady_clock::now() >= deadline) {
      end_turn();
      return begun;
    }
    std::this_thread::sleep_for(busy_pause());
  }
}

void SqliteSession::rollback() {
  // Some errors make SQLite roll back by itself; then there is nothing to do.
  if (state() == TransactionState::open) (void)simple("ROLLBACK").ok();
  end_turn();
}

// With the end of the transaction.
void SqliteSession::end_turn() {
  if (!have_turn_) return;
  have_turn_ = false;
  turn_.give();
}

Result<SqlRows> SqliteSession::execute(std::string_view sql, std::span<const SqlValue> values) {
  auto prepared = prepare(sql);
  if (!prepared.ok()) return std::move(prepared).fault();
  if (const auto why = values_do_not_fit(prepared.value().get(), values.size())) return misused(*why, sql);
  return step_all(prepared.value().get(), values, sql, ColumnNames::wanted);
}

TransactionState SqliteSession::state() const {
  return sqlite3_get_autocommit(handle_) == 0 ? TransactionState::open : TransactionState::none;
}

} // namespace oncekey::phases
