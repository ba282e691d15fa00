#include "store/redis/listing.h"

#include "redis/server_error.h"
#include "store/common/listing.h"
#include "store/redis/record_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace oncekey::redis {
namespace {

// Some hundred microseconds of a server's time for each step.
constexpr std::string_view kKeysPerStep = "1000";
constexpr std::chrono::seconds kListingMax{30};
constexpr std::chrono::seconds kStepTimeout{5};
// Head and texts, and responses without a large body; of a longer one the status is enough.
constexpr std::string_view kListedBytes = "65536";

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Goes through one server.
class Scan {
 public:
  Scan(std::shared_ptr<RedisConnection> connection, const KeyNames& names, const ListRequest& request, Time now,
       std::vector<Listed>& listed, std::set<RecordId>& seen)
      : connection_(std::move(connection)),
        names_(names),
        request_(request),
        now_(now),
        pattern_(names.records_pattern(request.id_prefix)),
        listed_(listed),
        seen_(seen) {}

  Task<Status> run(Deadline deadline) {
    std::string cursor = "0";
    do {
      if (Clock::now() >= deadline) {
        co_return unavailable(
            fmt::format("the listing took longer than {} s; ask for the records whose id begins with "
                        "some digits, or for fewer",
                        kListingMax.count()));
      }
      std::string scan = command({"SCAN", cursor, "MATCH", pattern_, "COUNT", kKeysPerStep, "TYPE", "string"});
      const Result<OwnedReply> reply = co_await connection_->ask(std::move(scan), Clock::now() + kStepTimeout);
      if (!reply) co_return reply.fault();
      if (reply->look().is_error()) co_return fault_of(parse_error(reply->look().text()), connection_->host());
      cursor = std::string(reply->look()[0].text());
      const Reply keys = reply->look()[1];
      for (std::size_t i = 0; i < keys.size() && listed_.size() < request_.limit; ++i) {
        const Status looked = co_await look_at(std::string(keys[i].text()));
        if (!looked) co_return looked;
      }
    } while (cursor != "0" && !cursor.empty() && listed_.size() < request_.limit);
    co_return ok_status();
  }

 private:
  Task<Status> look_at(std::string key) {
    const std::optional<RecordId> id = names_.id_of(key);
    if (!id || !seen_.insert(*id).second) co_return ok_status();
    std::string get = command({"GETRANGE", key, "0", kListedBytes});
    const Result<OwnedReply> reply = co_await connection_->ask(std::move(get), Clock::now() + kStepTimeout);
    if (!reply) co_return reply.fault();
    // Gone or elsewhere since; neither is a reason to show nothing at all.
    if (reply->look().is_error() || reply->look().text().empty()) co_return ok_status();
    Result<Record> record = decode_value(reply->look().text(), ReadResponse::summary);
    if (!record) co_return std::move(record).fault();
    if (is_listed(request_, *id, *record, now_)) {
      listed_.push_back({*id, as_listed(*std::move(record))});
    }
    co_return ok_status();
  }

  const std::shared_ptr<RedisConnection> connection_;
  const KeyNames& names_;
  const ListRequest& request_;
  const Time now_;
  const std::string pattern_;
  std::vector<Listed>& listed_;
  std::set<RecordId>& seen_;
};

Task<Result<std::vector<Listed>>> gather(Servers& servers, const KeyNames& names, const ListRequest& request,
                                         Time now) {
  std::vector<Listed> listed;
  if (!is_hex(request.id_prefix) || request.id_prefix.size() > 64) co_return listed;
  std::set<RecordId> seen; // a record may be met twice while slots or hash tables move
  const Deadline deadline = Clock::now() + kListingMax;
  for (const std::shared_ptr<Link>& link : servers.primaries()) {
    if (!link->is_ready()) co_return link->why_not();
    Scan scan(link->connection(), names, request, now, listed, seen);
    const Status status = co_await scan.run(deadline);
    if (!status) co_return status.fault();
    if (listed.size() >= request.limit) break;
  }
  co_return listed;
}

} // namespace

Task<void> list_records(Servers& servers, const KeyNames& names, ListRequest request, Time now,
                        Done<std::vector<Listed>> done) {
  Result<std::vector<Listed>> listed = co_await gather(servers, names, request, now);
  done(std::move(listed));
}

} // namespace oncekey::redis
