#include "phases/engine.h"
#include "phases/sqlite_session.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey::phases {
namespace {

constexpr int kSynchronousFull = 2;

// SQLite takes no more than 500 SELECTs in one UNION. Where no reaper has run for long there are more buckets: they are
// put together in groups, and the groups in another UNION. SQLite finds its way to the index of each table through
// both.
constexpr std::size_t kUnionMax = 400;

std::string all_of(std::span<const std::string> tables) {
  std::vector<std::string> groups;
  while (!tables.empty()) {
    const auto group = tables.first(std::min(tables.size(), kUnionMax));
    tables = tables.subspan(group.size());
    groups.push_back(fmt::format("SELECT * FROM {}", fmt::join(group, " UNION ALL SELECT * FROM ")));
  }
  if (groups.size() == 1) return groups[0];
  return fmt::format("SELECT * FROM ({})", fmt::join(groups, ") UNION ALL SELECT * FROM ("));
}

class SqliteEngine final : public Engine {
 public:
  SqliteEngine(std::string path, DatabaseOptions options) : Engine(std::move(options)), path_(std::move(path)) {}

  Dialect dialect() const override { return Dialect::sqlite; }

  Result<std::unique_ptr<Session>> adopt(OwnConnection connection) override {
    if (!connection.sqlite()) return invalid("a Postgres connection was given for a SQLite database");
    auto session = std::make_unique<SqliteSession>(connection.sqlite(), HandleOwner::application, turn_, options());
    auto rows = session->execute("PRAGMA synchronous", {});
    if (!rows.ok()) return std::move(rows).fault();
    if (rows->rows.at(0).integer(0) < kSynchronousFull) {
      return invalid("the connection does not sync every commit: run PRAGMA synchronous = FULL on it");
    }
    return std::unique_ptr<Session>(std::move(session));
  }

 protected:
  Result<std::unique_ptr<Session>> connect() override {
    sqlite3* raw = nullptr;
    // A connection is used by one thread at a time: SQLite need not lock it.
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    const int code = sqlite3_open_v2(path_.c_str(), &raw, flags, nullptr);
    auto session = std::make_unique<SqliteSession>(raw, HandleOwner::library, turn_, options());
    if (code != SQLITE_OK) {
      return unavailable(fmt::format("cannot open {}: {}", path_, raw ? sqlite3_errmsg(raw) : "out of memory"));
    }
    sqlite3_extended_result_codes(raw, 1);
    sqlite3_busy_timeout(raw, static_cast<int>(options().wait_max.count()));
    char* error = nullptr;
    const char* const settings =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;";
    if (sqlite3_exec(raw, settings, nullptr, nullptr, &error) != SQLITE_OK) {
      Fault fault = unavailable(fmt::format("cannot set up {}: {}", path_, error ? error : ""));
      sqlite3_free(error);
      return fault;
    }
    return std::unique_ptr<Session>(std::move(session));
  }

  // A bucket has the columns of the table that stays empty.
  Status create_bucket(Session& session, BucketKind kind, const BucketId& bucket) override {
    const std::string empty = fmt::format("oncekey_{}_none", to_string(kind));
    const std::string name = to_string(bucket);
    const Command commands[] = {know_bucket(kind, name, bucket),
                                {"SELECT sql FROM sqlite_master WHERE name = $1", {std::string_view(empty)}}};
    auto begun = session.begin(Isolation::serializable, Guard::commands, commands);
    if (!begun.ok()) return std::move(begun).fault();
    const std::string text = begun.value()[1].rows.empty() ? "" : begun.value()[1].rows[0].text(0);
    if (text.empty()) return undone(session, corrupt(fmt::format("the table {} is gone", empty)));
    const std::string create =
        fmt::format("CREATE TABLE IF NOT EXISTS {} {}", bucket_table(kind, bucket), text.substr(text.find('(')));
    return renew_view_and_commit(session, kind, create);
  }

  Status remove_bucket(Session& session, BucketKind kind, const BucketId& bucket) override {
    const std::string drop = fmt::format("DROP TABLE IF EXISTS {}", bucket_table(kind, bucket));
    const std::string name = to_string(bucket);
    const Command command = forget_bucket(kind, name);
    if (auto begun = session.begin(Isolation::serializable, Guard::commands, {&command, 1}); !begun.ok())
      return std::move(begun).fault();
    return renew_view_and_commit(session, kind, drop);
  }

 private:
  static Status undone(Session& session, Fault fault) {
    session.rollback();
    return fault;
  }

  // Makes or drops a bucket's table. The view shows every bucket that the list names. In the transaction that changed
  // the list.
  static Status renew_view_and_commit(Session& session, BucketKind kind, std::string_view change_table) {
    auto rows = session.run_one({"SELECT name FROM oncekey_bucket WHERE kind = $1 ORDER BY name", {to_string(kind)}});
    if (!rows.ok()) return undone(session, std::move(rows).fault());
    std::vector<std::string> tables{fmt::format("oncekey_{}_none", to_string(kind))};
    for (const SqlRow& row : rows->rows) {
      const auto bucket = bucket_named(row.text(0));
      if (!bucket.ok()) return undone(session, bucket.fault());
      tables.push_back(bucket_table(kind, *bucket));
    }
    const std::string drop = fmt::format("DROP VIEW IF EXISTS oncekey_{}", to_string(kind));
    const std::string view = fmt::format("CREATE VIEW oncekey_{} AS {}", to_string(kind), all_of(tables));
    const Command commands[] = {{drop, {}}, {change_table, {}}, {view, {}}};
    return session.end(commands);
  }

  const std::string path_;
  WriterTurn turn_;
};

} // namespace

Result<std::unique_ptr<Engine>> open_sqlite(const std::string& path, DatabaseOptions options) {
  if (path.empty()) return invalid("sqlite: needs the path of a file, as in sqlite:rides.db");
  if (path == ":memory:") return invalid("a SQLite database in memory forgets its keys: name a file");
  auto engine = std::make_unique<SqliteEngine>(path, std::move(options));
  // One session is opened now, so that a file that cannot be opened is found here and not at the first request.
  if (auto session = engine->any_session(); !session.ok()) return std::move(session).fault();
  return std::unique_ptr<Engine>(std::move(engine));
}

} // namespace oncekey::phases
