#include <oncekey/inbox.h>

#include "phases/conflict_budget.h"
#include "phases/engine.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

using phases::BucketKind;
using phases::Command;

constexpr std::size_t kInboxTextMax = 255;

constexpr std::string_view kSeenSqlite =
    "SELECT EXISTS (SELECT 1 FROM oncekey_inbox WHERE consumer = $1 AND message_id = $2 AND expires_at > {now})";
constexpr std::string_view kSeenPostgres = "SELECT oncekey_seen($1, $2, {now})";
constexpr std::string_view kNow = "SELECT {now}";
constexpr std::string_view kRememberPostgres =
    "INSERT INTO oncekey_inbox (consumer, message_id, expires_at, done_at, bucket) VALUES ($1, $2, $3, {now}, $4)";
constexpr std::string_view kRememberSqlite =
    "INSERT OR REPLACE INTO {} (consumer, message_id, expires_at, done_at) VALUES ($1, $2, $3, {{now}})";

// When the entry of a message that is processed now expires, and the bucket that keeps it until then.
struct Place {
  Time expires_at;
  BucketId bucket;
};

Result<Place> place_now(Database& database, const InboxOptions& options) {
  auto session = database.engine().session();
  if (!session.ok()) return std::move(session).fault();
  auto rows = (*session)->run_one({kNow, {}});
  if (!rows.ok()) return std::move(rows).fault();
  const Time expires_at = Time{Millis{rows->rows.at(0).integer(0)}} + options.remembered;
  return Place{expires_at, bucket_of(expires_at, options.remembered)};
}

Status remember(phases::Session& session, const Transaction& transaction, Bytes consumer, Bytes message_id,
                const Place& place) {
  const std::string name = to_string(place.bucket);
  const std::string into_sqlite =
      fmt::format(fmt::runtime(kRememberSqlite), phases::bucket_table(BucketKind::inbox, place.bucket));
  const bool postgres = session.dialect() == Dialect::postgres;
  const Command command{
      postgres ? kRememberPostgres : std::string_view(into_sqlite),
      {consumer, message_id, std::int64_t{place.expires_at.time_since_epoch().count()}, std::string_view(name)}};
  auto ended = phases::end_with_jobs(session, transaction, {&command, 1});
  // Two deliveries at the same time: the second to insert is run again and finds the first.
  if (!ended.ok() && session.error_code() == "23505") return Fault{FaultKind::conflict, ended.fault().message};
  return ended;
}

} // namespace

Result<Processed> process_once(Database& database, std::string_view consumer, std::string_view message_id,
                               const std::function<void(Transaction&)>& code, const InboxOptions& options) {
  if (consumer.empty() || message_id.empty() || consumer.size() > kInboxTextMax || message_id.size() > kInboxTextMax) {
    return invalid(fmt::format("consumer and message_id must have 1 to {} bytes each", kInboxTextMax));
  }
  auto place = place_now(database, options);
  if (!place.ok()) return std::move(place).fault();
  if (auto ready = database.engine().ensure_bucket(BucketKind::inbox, place->bucket); !ready.ok()) {
    return std::move(ready).fault();
  }
  Processed processed = Processed::done_now;
  auto done = phases::with_retries(database.engine(), options.conflict_budget, [&](phases::Session& session) -> Status {
    // The transaction is serializable and reads all buckets: of two deliveries that write to different buckets, the
    // database undoes one.
    const Command seen{session.dialect() == Dialect::postgres ? kSeenPostgres : kSeenSqlite,
                       {Bytes{consumer}, Bytes{message_id}}};
    auto begun = session.begin(phases::Isolation::serializable, phases::Guard::session, {&seen, 1});
    if (!begun.ok()) return std::move(begun).fault();
    if (begun.value()[0].rows.at(0).integer(0) != 0) {
      session.rollback();
      processed = Processed::done_before;
      return ok_status();
    }
    Transaction transaction(session);
    if (auto ran = phases::run_code(session, [&] { code(transaction); }); !ran.ok()) return ran;
    return remember(session, transaction, {consumer}, {message_id}, *place);
  });
  if (!done.ok()) return std::move(done).fault();
  return processed;
}

} // namespace oncekey
