#include "phases/engine.h"
#include "phases/postgres_session.h"

#include "base/masked_url.h"

#include <fmt/format.h>

#include <utility>

namespace oncekey::phases {
namespace {

// Dropping a bucket locks the parent table. Requests wait for the reaper no longer than this; the reaper tries again.
constexpr std::string_view kShortLocks = "SET LOCAL lock_timeout = '200ms'";

class PostgresEngine final : public Engine {
 public:
  PostgresEngine(std::string url, DatabaseOptions options) : Engine(std::move(options)), url_(std::move(url)) {}

  Dialect dialect() const override { return Dialect::postgres; }

  Result<std::unique_ptr<Session>> adopt(OwnConnection connection) override {
    if (!connection.postgres()) return invalid("a SQLite connection was given for a Postgres database");
    return std::unique_ptr<Session>(
        std::make_unique<PostgresSession>(connection.postgres(), HandleOwner::application, options()));
  }

 protected:
  Result<std::unique_ptr<Session>> connect() override {
    const std::string timeout = fmt::format(
        "{}", std::max<std::int64_t>(2, std::chrono::ceil<std::chrono::seconds>(options().connect_timeout).count()));
    // A lost peer is noticed within half a minute even where nothing is sent; with libpq's defaults it takes two hours.
    // The gateway's Postgres store has the same settings. For libpq the settings of the URL, which stands in dbname,
    // override those before it.
    const char* const names[] = {"keepalives_idle",
                                 "keepalives_interval",
                                 "keepalives_count",
                                 "tcp_user_timeout",
                                 "dbname",
                                 "connect_timeout",
                                 "fallback_application_name",
                                 "client_encoding",
                                 nullptr};
    const char* const values[] = {"10", "5", "4", "10000", url_.c_str(), timeout.c_str(), "oncekey", "UTF8", nullptr};
    PGconn* const handle = PQconnectdbParams(names, values, 1);
    auto session = std::make_unique<PostgresSession>(handle, HandleOwner::library, options());
    if (!session->usable()) {
      return unavailable(
          fmt::format("cannot connect to {}: {}", masked_url(url_), handle ? PQerrorMessage(handle) : "out of memory"));
    }
    PQsetNoticeReceiver(
        handle, [](void*, const PGresult*) {}, nullptr);
    return std::unique_ptr<Session>(std::move(session));
  }

  // Made as a table and attached afterwards: unlike CREATE … PARTITION OF, that blocks neither readers nor writers.
  Status create_bucket(Session& session, BucketKind kind, const BucketId& bucket) override {
    const std::string table = bucket_table(kind, bucket);
    const std::string name = to_string(bucket);
    const Command begin[] = {{kLockPostgresSchema, {}},
                             {"SELECT to_regclass($1::text) IS NOT NULL", {std::string_view(table)}}};
    auto begun = session.begin(Isolation::read_committed, Guard::commands, begin);
    if (!begun.ok()) return std::move(begun).fault();
    if (begun.value()[1].rows.at(0).integer(0) != 0) {
      session.rollback();
      return ok_status();
    }
    const std::string create = fmt::format("CREATE TABLE {} (LIKE oncekey_{} INCLUDING ALL)", table, to_string(kind));
    const std::string attach =
        fmt::format("ALTER TABLE oncekey_{} ATTACH PARTITION {} FOR VALUES IN ('{}')", to_string(kind), table, name);
    const Command commands[] = {{create, {}}, {attach, {}}, know_bucket(kind, name, bucket)};
    return session.end(commands);
  }

  Status remove_bucket(Session& session, BucketKind kind, const BucketId& bucket) override {
    const std::string drop = fmt::format("DROP TABLE IF EXISTS {}", bucket_table(kind, bucket));
    const std::string name = to_string(bucket);
    const Command begin[] = {{kShortLocks, {}}, {kLockPostgresSchema, {}}};
    if (auto begun = session.begin(Isolation::read_committed, Guard::commands, begin); !begun.ok())
      return std::move(begun).fault();
    const Command commands[] = {{drop, {}}, forget_bucket(kind, name)};
    return session.end(commands);
  }

 private:
  const std::string url_;
};

} // namespace

Result<std::unique_ptr<Engine>> open_postgres(const std::string& url, DatabaseOptions options) {
  auto engine = std::make_unique<PostgresEngine>(url, std::move(options));
  if (auto session = engine->any_session(); !session.ok()) return std::move(session).fault();
  return std::unique_ptr<Engine>(std::move(engine));
}

} // namespace oncekey::phases
