#include "phases/engine.h"

#include "base/enum_name.h"
#include "base/masked_url.h"
#include "phases/conflict_budget.h"
#include "phases/sql_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>

namespace oncekey::phases {
namespace {

// For making a table. A phase that finds none has this long too (RunnerOptions::conflict_budget).
constexpr Millis kBucketBudget = std::chrono::seconds(5);

Fault other_version(int found) {
  return {found > kSchemaVersion ? FaultKind::newer_format : FaultKind::invalid,
          fmt::format("the library's tables have schema version {}, and this program works with version {}: run {}",
                      found, kSchemaVersion,
                      found > kSchemaVersion ? "the newer program" : "the migrations that come with the library")};
}

BucketId after(const BucketId& bucket) { return {bucket.width_log2, bucket.index + 1}; }

} // namespace

void GiveBack::operator()(Session* given) const {
  std::unique_ptr<Session> session(given);
  if (session->state() != TransactionState::none) session->rollback();
  if (!borrowed) return engine->give_back(std::move(session));
  const bool idle = session->usable() && session->state() == TransactionState::none;
  session.reset();
  engine->options_.connections.give_back(*borrowed,
                                         idle ? ConnectionProvider::State::idle : ConnectionProvider::State::broken);
}

std::string_view to_string(BucketKind kind) { return enum_name(kind); }

std::string bucket_table(BucketKind kind, const BucketId& bucket) {
  return fmt::format("oncekey_{}_{}_{}", to_string(kind), bucket.width_log2, bucket.index);
}

Result<PooledSession> Engine::session() {
  auto session = any_session();
  if (!session.ok() || schema_known_) return session;
  auto version = schema_version(**session);
  if (!version.ok()) return std::move(version).fault();
  if (version.value() && *version.value() != kSchemaVersion) return other_version(*version.value());
  if (version.value()) schema_known_ = true;
  return session;
}

Result<std::optional<int>> Engine::schema_version(Session& session) {
  auto rows = session.run_one({"SELECT value FROM oncekey_meta WHERE name = 'schema'", {}});
  if (!rows.ok()) {
    // The tables are missing. The first statement that needs them says so.
    if (rows.fault().kind == FaultKind::invalid) return std::optional<int>{};
    return std::move(rows).fault();
  }
  if (rows->rows.empty()) return std::optional<int>{};
  const std::string& text = rows->rows[0].text(0);
  int version = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), version).ec != std::errc{}) {
    return corrupt("the version of the library's schema, in oncekey_meta, is not a number");
  }
  return std::optional(version);
}

Result<PooledSession> Engine::borrow() {
  const auto asked = [&]() -> Result<OwnConnection> {
    try {
      return options_.connections.borrow();
    } catch (const std::exception& error) {
      return unavailable(fmt::format("the application's pool gave no connection: {}", error.what()));
    } catch (...) {
      return unavailable("the application's pool gave no connection");
    }
  };
  auto lent = asked();
  if (!lent.ok()) return std::move(lent).fault();
  auto session = adopt(*lent);
  if (session.ok()) return pooled(std::move(session).value(), *lent);
  options_.connections.give_back(*lent, ConnectionProvider::State::idle);
  return std::move(session).fault();
}

Result<PooledSession> Engine::any_session() {
  if (options_.connections.borrow) return borrow();
  {
    std::unique_lock lock(mutex_);
    const auto free = [&] { return !idle_.empty() || open_ < options_.connections_max; };
    if (!returned_.wait_for(lock, options_.wait_max, free)) {
      return Fault{FaultKind::exhausted,
                   fmt::format("all {} connections to the database were in use for {} ms: raise "
                               "DatabaseOptions::connections_max, or use no connection inside a phase but its own",
                               open_, options_.wait_max.count())};
    }
    // A server that was restarted has closed all idle connections. They are skipped, so that no request fails for it.
    while (!idle_.empty()) {
      std::unique_ptr<Session> session = std::move(idle_.back());
      idle_.pop_back();
      if (session->still_there()) return pooled(std::move(session));
      --open_;
    }
    ++open_;
  }
  auto opened = connect();
  if (opened.ok()) return pooled(std::move(opened).value());
  const std::lock_guard lock(mutex_);
  --open_;
  returned_.notify_one();
  return std::move(opened).fault();
}

void Engine::give_back(std::unique_ptr<Session> session) {
  const bool usable = session->usable();
  const bool hangs = session->timed_out();
  if (!usable) session.reset();
  std::vector<std::unique_ptr<Session>> doubtful; // closed after the lock
  const std::lock_guard lock(mutex_);
  if (usable) {
    idle_.push_back(std::move(session));
  } else {
    --open_;
  }
  // All idle connections are closed: they would hang as well. The next caller opens a new one, whose time-out is
  // shorter.
  if (hangs) {
    doubtful.swap(idle_);
    open_ -= doubtful.size();
    returned_.notify_all();
  }
  returned_.notify_one();
}

Status Engine::migrate() {
  auto session = any_session();
  if (!session.ok()) return std::move(session).fault();
  auto found = schema_version(**session);
  if (!found.ok()) return std::move(found).fault();
  if (!found.value()) {
    std::vector<std::string_view> statements;
    // Two processes that create the same table at the same time would fail.
    if (dialect() == Dialect::postgres) statements.push_back(kLockPostgresSchema);
    for (const std::string_view statement : statements_of(schema_text(dialect()))) statements.push_back(statement);
    if (auto made = (*session)->execute_script(statements); !made.ok()) return made;
    found = schema_version(**session);
    if (!found.ok()) return std::move(found).fault();
  }
  if (!found.value()) return corrupt("the version of the library's schema is missing from oncekey_meta");
  if (*found.value() != kSchemaVersion) return other_version(*found.value());
  schema_known_ = true;
  return ok_status();
}

void Engine::distrust_buckets() {
  const std::lock_guard lock(mutex_);
  known_buckets_.clear();
}

Result<const KeyedHash*> Engine::keyed_hash() {
  {
    const std::lock_guard lock(hash_mutex_);
    if (hash_) return &*hash_;
  }
  // Not under the lock: a database that hangs would make each caller wait for those before it, too.
  auto session = this->session();
  if (!session.ok()) return std::move(session).fault();
  Secret made;
  fill_random(made);
  // The first process writes the secret; all others read what it wrote.
  const Command commands[] = {
      {"INSERT INTO oncekey_meta (name, value) VALUES ('secret', $1) ON CONFLICT (name) DO NOTHING",
       {Bytes{as_bytes(made)}}},
      {"SELECT value FROM oncekey_meta WHERE name = 'secret'", {}}};
  auto rows = (*session)->transact(Isolation::read_committed, commands);
  if (!rows.ok()) return std::move(rows).fault();
  if (rows.value()[1].rows.empty()) return corrupt("the database's secret is gone");
  const std::string& found = rows.value()[1].rows[0].text(0);
  if (found.size() != made.size()) return corrupt("the database's secret does not have 32 bytes");
  std::copy(found.begin(), found.end(), made.begin());
  const std::lock_guard lock(hash_mutex_);
  return hash_ ? &*hash_ : &hash_.emplace(made); // once set, it stays: callers keep the pointer
}

Status Engine::ensure_bucket(BucketKind kind, const BucketId& bucket) {
  for (const BucketId& wanted : {bucket, after(bucket)}) {
    const std::string table = bucket_table(kind, wanted);
    {
      const std::lock_guard lock(mutex_);
      if (known_buckets_.contains(table)) continue;
    }
    auto session = this->session();
    if (!session.ok()) return std::move(session).fault();
    // Behind a pooler, what was prepared may be gone within the transaction.
    ConflictBudget budget(kBucketBudget);
    Status made = create_bucket(**session, kind, wanted);
    while (!made.ok() && made.fault().kind == FaultKind::conflict && budget.wait())
      made = create_bucket(**session, kind, wanted);
    if (!made.ok()) return made;
    const std::lock_guard lock(mutex_);
    known_buckets_.insert(table);
  }
  return ok_status();
}

Result<std::vector<ExpiredBucket>> Engine::expired_buckets(Millis margin) {
  auto session = this->session();
  if (!session.ok()) return std::move(session).fault();
  auto rows = (*session)->transact_one(
      {"SELECT kind, name FROM oncekey_bucket WHERE ends_at <= {now} - $1 ORDER BY ends_at, kind, name",
       {margin.count()}});
  if (!rows.ok()) return std::move(rows).fault();
  std::vector<ExpiredBucket> expired;
  for (const SqlRow& row : rows->rows) {
    const auto bucket = bucket_named(row.text(1));
    if (!bucket.ok()) return bucket.fault();
    expired.push_back({row.text(0) == "inbox" ? BucketKind::inbox : BucketKind::answer, *bucket});
  }
  return expired;
}

Result<Dropped> Engine::drop_bucket(const ExpiredBucket& expired) {
  auto session = this->session();
  if (!session.ok()) return std::move(session).fault();
  if (auto removed = remove_bucket(**session, expired.kind, expired.bucket); !removed.ok()) {
    if (removed.fault().kind == FaultKind::conflict) return Dropped::in_use;
    return std::move(removed).fault();
  }
  return Dropped::yes;
}

Command know_bucket(BucketKind kind, std::string_view name, const BucketId& bucket) {
  return {"INSERT INTO oncekey_bucket (kind, name, ends_at) VALUES ($1, $2, $3) ON CONFLICT (kind, name) DO NOTHING",
          {to_string(kind), name, std::int64_t{bucket.end().time_since_epoch().count()}}};
}
Command forget_bucket(BucketKind kind, std::string_view name) {
  return {"DELETE FROM oncekey_bucket WHERE kind = $1 AND name = $2", {to_string(kind), name}};
}

Result<BucketId> bucket_named(const std::string& name) {
  const auto bucket = bucket_from_name(name);
  if (!bucket) return corrupt(fmt::format("oncekey_bucket names {}, which is not the name of a bucket", name));
  return *bucket;
}

} // namespace oncekey::phases

namespace oncekey {

std::string_view to_string(Dialect dialect) { return enum_name(dialect); }

Database::Database(std::unique_ptr<phases::Engine> engine) : engine_(std::move(engine)) {}
Database::~Database() = default;

Dialect Database::dialect() const { return engine_->dialect(); }
Status Database::migrate() { return engine_->migrate(); }

Result<std::unique_ptr<Database>> open_database(std::string_view url, DatabaseOptions options) {
  constexpr std::string_view kSqlite = "sqlite:";
  const auto opened = [&]() -> Result<std::unique_ptr<phases::Engine>> {
    if (options.connections_max == 0) return invalid("connections_max must be at least 1");
    if (options.answer_timeout <= Millis(0)) return invalid("answer_timeout must be greater than 0");
    if (static_cast<bool>(options.connections.borrow) != static_cast<bool>(options.connections.give_back)) {
      return invalid("connections must have both borrow and give_back, or neither");
    }
    if (url.starts_with(kSqlite)) {
      return phases::open_sqlite(std::string(url.substr(kSqlite.size())), std::move(options));
    }
    if (url.starts_with("postgres://") || url.starts_with("postgresql://")) {
      return phases::open_postgres(std::string(url), std::move(options));
    }
    return invalid(fmt::format("database URL: expected sqlite:PATH or postgres://…, got \"{}\"", masked_url(url)));
  };
  auto engine = opened();
  if (!engine.ok()) return std::move(engine).fault();
  return std::make_unique<Database>(std::move(engine).value());
}

Result<std::string_view> schema_text(std::string_view dialect) {
  if (dialect == "sqlite") return schema_text(Dialect::sqlite);
  if (dialect == "postgres") return schema_text(Dialect::postgres);
  return invalid(fmt::format("there is no schema for {}: sqlite and postgres are known", dialect));
}

} // namespace oncekey
