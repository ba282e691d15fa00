// Engine: what is behind a Database: its connections, its buckets and its secret.
#pragma once

#include "base/crypto.h"
#include "core/bucket.h"
#include "phases/session.h"

#include <oncekey/database.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace oncekey::phases {

class Engine;

// A session of the pool, the library's own or the application's. It goes back to the pool when this is destroyed.
struct GiveBack {
  Engine* engine;
  std::optional<OwnConnection> borrowed;
  void operator()(Session* session) const;
};
using PooledSession = std::unique_ptr<Session, GiveBack>;

enum class BucketKind { answer, inbox };
std::string_view to_string(BucketKind kind);
// "oncekey_answer_25_53192": the table or partition of a bucket.
std::string bucket_table(BucketKind kind, const BucketId& bucket);

struct ExpiredBucket {
  BucketKind kind;
  BucketId bucket;
};
enum class Dropped { yes, in_use };

class Engine {
 public:
  explicit Engine(DatabaseOptions options) : options_(std::move(options)) {}
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  virtual Dialect dialect() const = 0;
  const DatabaseOptions& options() const { return options_; }

  // Waits up to wait_max for a free connection; a fault of kind `exhausted` when there is none. The first session
  // checks that the schema has this library's version.
  Result<PooledSession> session();
  // The same without that check.
  Result<PooledSession> any_session();
  // A session on a connection of the application's, for one run.
  virtual Result<std::unique_ptr<Session>> adopt(OwnConnection connection) = 0;

  Status migrate();

  // Ids and fingerprints are keyed with the database's secret, thirty-two random bytes made once for each database. It
  // is read once. Lives as long as the engine.
  Result<const KeyedHash*> keyed_hash();

  // Makes the bucket's table unless it is known to exist, and the next bucket's with it: writers on both sides of a
  // border see both.
  Status ensure_bucket(BucketKind kind, const BucketId& bucket);
  // A write found its bucket missing: the next ensure_bucket asks the database again.
  void distrust_buckets();
  Result<std::vector<ExpiredBucket>> expired_buckets(Millis margin);
  Result<Dropped> drop_bucket(const ExpiredBucket& expired);

 protected:
  virtual Result<std::unique_ptr<Session>> connect() = 0;
  virtual Status create_bucket(Session& session, BucketKind kind, const BucketId& bucket) = 0;
  virtual Status remove_bucket(Session& session, BucketKind kind, const BucketId& bucket) = 0;

 private:
  friend struct GiveBack;
  Result<PooledSession> borrow();
  PooledSession pooled(std::unique_ptr<Session> session, std::optional<OwnConnection> borrowed = std::nullopt) {
    return PooledSession(session.release(), GiveBack{this, borrowed});
  }
  void give_back(std::unique_ptr<Session> session);
  // The version of the schema, or nothing if the tables are missing.
  Result<std::optional<int>> schema_version(Session& session);

  const DatabaseOptions options_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<Session>> idle_;
  std::size_t open_ = 0;
  std::atomic<bool> schema_known_{false};
  std::mutex hash_mutex_; // before mutex_
  std::optional<KeyedHash> hash_;
  std::set<std::string> known_buckets_;
};

// Held during every change of the library's tables in Postgres.
inline constexpr std::string_view kLockPostgresSchema = "SELECT pg_advisory_xact_lock(7954016541205320)";

// The list of buckets changes in the same transaction as the tables.
Command know_bucket(BucketKind kind, std::string_view name, const BucketId& bucket);
Command forget_bucket(BucketKind kind, std::string_view name);
// The bucket that a row of the list names.
Result<BucketId> bucket_named(const std::string& name);

Result<std::unique_ptr<Engine>> open_sqlite(const std::string& path, DatabaseOptions options);
Result<std::unique_ptr<Engine>> open_postgres(const std::string& url, DatabaseOptions options);

} // namespace oncekey::phases
