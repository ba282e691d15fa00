#include "phases/session.h"

#include "base/crypto.h"
#include "base/json_text.h"

#include <oncekey/check.h>

#include <fmt/format.h>

namespace oncekey::phases {
namespace {

std::string now_in(Dialect dialect, Millis ahead) {
  const char* const clock = dialect == Dialect::postgres
                                ? "(floor(extract(epoch from clock_timestamp()) * 1000)::bigint"
                                : "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)";
  return ahead.count() == 0 ? fmt::format("{})", clock) : fmt::format("{} + {})", clock, ahead.count());
}

std::string replaced(std::string_view token, Dialect dialect, Millis ahead) {
  const bool postgres = dialect == Dialect::postgres;
  if (token == "now") return now_in(dialect, ahead);
  if (token == "skip_locked") return postgres ? "FOR UPDATE SKIP LOCKED" : "";
  if (token.starts_with("in_texts ")) {
    const std::string_view list = token.substr(9);
    return postgres ? fmt::format("= ANY (ARRAY(SELECT jsonb_array_elements_text({}::jsonb)))", list)
                    : fmt::format("IN (SELECT value FROM json_each({}))", list);
  }
  if (token.starts_with("at ")) {
    const std::size_t blank = token.find(' ', 3);
    const std::string_view list = token.substr(3, blank - 3), index = token.substr(blank + 1);
    return postgres
               ? fmt::format("({0}::bigint[])[least({1} + 1, cardinality({0}::bigint[]))]", list, index)
               : fmt::format("json_extract({0}, '$[' || min({1}, json_array_length({0}) - 1) || ']')", list, index);
  }
  ONCEKEY_CHECK(token.starts_with("in "), "a token of session.h");
  const std::string_view value = token.substr(3);
  return postgres ? fmt::format("= ANY ({}::bigint[])", value)
                  : fmt::format("IN (SELECT value FROM json_each({}))", value);
}

// The statements around a transaction. One that is empty is not sent.
struct TransactionWords {
  std::string_view begin_read_committed{}, begin_serializable{};
  std::string_view mark, check_mark, unmarked_code;
  std::string_view make_durable{}, commit = "COMMIT";
};

// Postgres. The mark is a setting that lasts as long as the transaction. If application code ended the transaction and
// began another one, the mark is missing, and the check before the COMMIT divides by zero: nothing commits.
//
// `make_durable` turns synchronous_commit on where it is off. A claim that a crash of the server takes back would take
// the operation's identity with it, from which foreign keys are derived: the retry would charge again under another
// key. Any other value stays as it is. Sent before every COMMIT and in its round trip, because the application, a
// reload or a pooler may have changed the session's setting since.
constexpr TransactionWords kPostgresWords{
    .begin_read_committed = "BEGIN ISOLATION LEVEL READ COMMITTED",
    .begin_serializable = "BEGIN ISOLATION LEVEL SERIALIZABLE",
    .mark = "SELECT set_config('oncekey.transaction', $1, true)",
    .check_mark = "SELECT 1 / (current_setting('oncekey.transaction', true) IS NOT DISTINCT FROM $1)::int",
    .unmarked_code = "22012", // division by zero
    .make_durable =
        "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"};

// SQLite: lock_writer() begins. The savepoint exists while the transaction is the one that was begun here: application
// code that ends it, also if it begins another one, ends the savepoint too.
constexpr TransactionWords kSqliteWords{.mark = "SAVEPOINT oncekey_transaction",
                                        .check_mark = "RELEASE oncekey_transaction",
                                        .unmarked_code = "1"}; // SQLITE_ERROR

const TransactionWords& words_of(Dialect dialect) {
  return dialect == Dialect::postgres ? kPostgresWords : kSqliteWords;
}

std::vector<Command> commands_of(std::initializer_list<std::string_view> statements) {
  std::vector<Command> commands;
  for (const std::string_view sql : statements) {
    if (!sql.empty()) commands.push_back({sql, {}});
  }
  return commands;
}

std::vector<Command> opening(Dialect dialect, Isolation isolation) {
  const TransactionWords& words = words_of(dialect);
  return commands_of({isolation == Isolation::serializable ? words.begin_serializable : words.begin_read_committed});
}

std::vector<Command> closing(Dialect dialect) {
  return commands_of({words_of(dialect).make_durable, words_of(dialect).commit});
}

Fault ended_inside() {
  return invalid("the application's code ended the transaction itself; only the library may commit or roll back");
}

Fault open_already() { return invalid("the connection has a transaction open already"); }

} // namespace

Result<SqlRows> Session::only(Result<std::vector<SqlRows>> rows) {
  if (!rows.ok()) return std::move(rows).fault();
  return std::move(rows->front());
}

Result<std::vector<SqlRows>> Session::run_between(std::vector<Command> begin, std::span<const Command> commands,
                                                  std::span<const Command> end) {
  if (auto locked = lock_writer(); !locked.ok()) return std::move(locked).fault();
  const auto before = static_cast<std::ptrdiff_t>(begin.size());
  begin.insert(begin.end(), commands.begin(), commands.end());
  begin.insert(begin.end(), end.begin(), end.end());
  auto rows = run(begin);
  if (!rows.ok()) {
    const bool unknown = !end.empty() && !usable();
    rollback();
    if (unknown) return Fault{FaultKind::timeout, rows.fault().message};
    return rows;
  }
  rows->erase(rows->begin(), rows->begin() + before);
  rows->resize(commands.size());
  return rows;
}

Result<std::vector<SqlRows>> Session::begin(Isolation isolation, Guard guard, std::span<const Command> commands) {
  if (state() != TransactionState::none) return open_already();
  mark_ = dialect() == Dialect::sqlite ? "savepoint" : "";
  if (mark_.empty() && guard == Guard::session) mark_ = fmt::format("{:016x}", random_u64());
  std::vector<Command> all = opening(dialect(), isolation);
  if (!mark_.empty()) all.push_back({words_of(dialect()).mark, {std::string_view(mark_)}});
  return run_between(std::move(all), commands, {});
}

Result<std::vector<SqlRows>> Session::transact(Isolation isolation, std::span<const Command> commands) {
  if (state() != TransactionState::none) return open_already();
  return run_between(opening(dialect(), isolation), commands, closing(dialect()));
}

Status Session::end(std::span<const Command> commands) {
  if (const TransactionState now = state(); now != TransactionState::open) {
    rollback();
    if (now == TransactionState::none) return ended_inside();
    return invalid("a statement inside the transaction failed and the code went on as if nothing had happened");
  }
  const TransactionWords& words = words_of(dialect());
  std::vector<Command> all;
  if (!mark_.empty()) all.push_back({words.check_mark, {std::string_view(mark_)}});
  all.insert(all.end(), commands.begin(), commands.end());
  for (Command& last : closing(dialect())) all.push_back(std::move(last));
  auto rows = run(all);
  if (rows.ok()) return ok_status();
  if (!usable()) return Fault{FaultKind::timeout, rows.fault().message + "; it is not known whether it committed"};
  // Triggers of the application run in the COMMIT and may divide by zero too: the statement tells them apart.
  const bool unmarked = error_code_ == words.unmarked_code && rows.fault().message.ends_with(words.check_mark);
  rollback();
  if (unmarked) return ended_inside();
  return std::move(rows).fault();
}

Status Session::execute_script(std::span<const std::string_view> statements) {
  Status done = lock_writer();
  std::vector<std::string_view> all{statements.begin(), statements.end()};
  const TransactionWords& words = words_of(dialect());
  if (!words.begin_read_committed.empty()) all.insert(all.begin(), words.begin_read_committed);
  all.push_back(words.commit);
  for (std::size_t at = 0; done.ok() && at < all.size(); ++at) done = simple(all[at]);
  if (!done.ok()) rollback();
  return done;
}

std::string id_list(Dialect dialect, std::span<const std::int64_t> ids) {
  const bool postgres = dialect == Dialect::postgres;
  return fmt::format("{}{}{}", postgres ? '{' : '[', fmt::join(ids, ","), postgres ? '}' : ']');
}

std::string text_list(std::span<const std::string> texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list.push_back(',');
    append_json_string(list, text);
  }
  list.push_back(']');
  return list;
}

Command walk_along_indexes(Dialect dialect) {
  constexpr std::string_view kPostgres =
      "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),"
      " set_config('enable_sort', 'off', true)";
  return {dialect == Dialect::postgres ? kPostgres : std::string_view("SELECT 1"), {}};
}

std::string_view migrate_hint(std::string_view message) {
  constexpr std::string_view kOurs = "oncekey_";
  const std::size_t at = message.find(kOurs);
  if (at == std::string_view::npos) return "";
  // A name with digits, such as oncekey_answer_25_53192, is a bucket: migrate() does not make those.
  const std::size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at + kOurs.size());
  if (end != std::string_view::npos && message[end] == '_') return "";
  return ". The library's tables are not there: call migrate() before anything else";
}

std::string in_dialect(std::string_view sql, Dialect dialect, Millis clock_ahead) {
  std::string out;
  out.reserve(sql.size() + 256);
  for (;;) {
    const std::size_t open = sql.find('{');
    out += sql.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = sql.find('}', open);
    ONCEKEY_CHECK(close != std::string_view::npos, "every token of our own SQL is closed");
    out += replaced(sql.substr(open + 1, close - open - 1), dialect, clock_ahead);
    sql.remove_prefix(close + 1);
  }
}

} // namespace oncekey::phases
