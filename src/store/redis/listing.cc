#include "store/redis/listing.h"

#include "core/job_transitions.h"
#include "redis/server_error.h"
#include "store/common/listing.h"
#include "store/redis/job_value.h"
#include "store/redis/meta.h"
#include "store/redis/record_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

bool is_id_prefix(std::string_view text) {
  return text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Goes through the keys of all servers that fit a pattern.
class Scan {
 public:
  virtual ~Scan() = default;

  Task<Status> run(Servers& servers) {
    const MonotonicTime deadline = Clock::now() + kListingMax;
    for (const std::shared_ptr<Link>& link : servers.primaries()) {
      if (!link->is_ready()) co_return link->why_not();
      const Status status = co_await scan(link->connection(), deadline);
      if (!status) co_return status;
      if (is_full()) break;
    }
    co_return ok_status();
  }

 protected:
  Scan(std::string pattern, std::string type) : pattern_(std::move(pattern)), type_(std::move(type)) {}

  virtual bool is_full() const = 0;
  virtual std::optional<RecordId> id_of(std::string_view key) const = 0;
  // The command that reads what a key has, and its answer.
  virtual std::string read(std::string_view key) const = 0;
  virtual Status add(const RecordId& id, RedisReply reply) = 0;

 private:
  Task<Status> scan(std::shared_ptr<RedisConnection> connection, MonotonicTime deadline) {
    std::string cursor = "0";
    do {
      if (Clock::now() >= deadline) {
        co_return unavailable(fmt::format(
            "the listing took longer than {} s; ask for those whose id begins with some digits, or for fewer",
            kListingMax.count()));
      }
      std::string step = command({"SCAN", cursor, "MATCH", pattern_, "COUNT", kKeysPerStep, "TYPE", type_});
      const Result<OwnedReply> reply = co_await connection->ask(std::move(step), Clock::now() + kStepTimeout);
      if (!reply) co_return reply.fault();
      if (reply->look().is_error()) co_return fault_of(parse_error(reply->look().text()), connection->host());
      cursor = std::string(reply->look()[0].text());
      const RedisReply keys = reply->look()[1];
      for (std::size_t i = 0; i < keys.size() && !is_full(); ++i) {
        const Status looked = co_await look_at(connection, std::string(keys[i].text()));
        if (!looked) co_return looked;
      }
    } while (cursor != "0" && !cursor.empty() && !is_full());
    co_return ok_status();
  }

  Task<Status> look_at(std::shared_ptr<RedisConnection> connection, std::string key) {
    const std::optional<RecordId> id = id_of(key);
    // A key may be met twice while slots or hash tables move.
    if (!id || !seen_.insert(*id).second) co_return ok_status();
    std::string get = read(key);
    const Result<OwnedReply> reply = co_await connection->ask(std::move(get), Clock::now() + kStepTimeout);
    if (!reply) co_return reply.fault();
    // Gone or elsewhere since; neither is a reason to show nothing at all.
    const RedisReply look = reply->look();
    if (look.is_error() || (look.text().empty() && look.size() == 0)) co_return ok_status();
    co_return add(*id, look);
  }

  const std::string pattern_;
  const std::string type_;
  std::set<RecordId> seen_;
};

class RecordScan final : public Scan {
 public:
  RecordScan(const KeyNames& names, const ListRequest& request, Time now)
      : Scan(names.records_pattern(request.id_prefix), "string"), names_(names), request_(request), now_(now) {}
  std::vector<Listed> listed() && { return std::move(listed_); }

 private:
  bool is_full() const override { return listed_.size() >= request_.limit; }
  std::optional<RecordId> id_of(std::string_view key) const override { return names_.id_of(key); }
  std::string read(std::string_view key) const override { return command({"GETRANGE", key, "0", kListedBytes}); }
  Status add(const RecordId& id, RedisReply reply) override {
    Result<Record> record = decode_value(reply.text(), ReadResponse::summary);
    if (!record) return std::move(record).fault();
    if (is_listed(request_, id, *record, now_)) listed_.push_back({id, as_listed(*std::move(record))});
    return ok_status();
  }

  const KeyNames& names_;
  const ListRequest& request_;
  const Time now_;
  std::vector<Listed> listed_;
};

class JobScan final : public Scan {
 public:
  JobScan(const KeyNames& names, const JobListRequest& request, Time now)
      : Scan(names.jobs_pattern(request.id_prefix), "hash"), names_(names), request_(request), now_(now) {}
  JobPage page() && { return std::move(page_); }

 private:
  bool is_full() const override { return !page_.whole; }
  std::optional<RecordId> id_of(std::string_view key) const override { return names_.job_id_of(key); }
  std::string read(std::string_view key) const override { return command({"HGETALL", key}); }
  Status add(const RecordId& id, RedisReply reply) override {
    Result<StoredJob> job = decode_job_fields(id, reply);
    if (!job) return std::move(job).fault();
    const bool listed = is_listed(request_, *job, now_);
    if (++looked_ > request_.look_max || (listed && page_.jobs.size() == request_.limit)) {
      page_.whole = false;
    } else if (listed) {
      page_.jobs.push_back(*std::move(job));
    }
    return ok_status();
  }

  const KeyNames& names_;
  const JobListRequest& request_;
  const Time now_;
  std::size_t looked_ = 0;
  JobPage page_;
};

} // namespace

Task<void> list_records(Servers& servers, const KeyNames& names, ListRequest request, Time now,
                        Done<std::vector<Listed>> done) {
  if (!is_id_prefix(request.id_prefix)) co_return done(std::vector<Listed>{});
  RecordScan scan(names, request, now);
  const Status status = co_await scan.run(servers);
  if (!status) co_return done(status.fault());
  done(std::move(scan).listed());
}

Task<void> list_jobs(Servers& servers, const KeyNames& names, JobListRequest request, Time now, Done<JobPage> done) {
  if (!is_id_prefix(request.id_prefix)) co_return done(JobPage{});
  JobScan scan(names, request, now);
  const Status status = co_await scan.run(servers);
  if (!status) co_return done(status.fault());
  done(std::move(scan).page());
}

Task<void> count_jobs(Loop& loop, Servers& servers, const KeyNames& names, Done<std::vector<JobCount>> done) {
  std::map<std::pair<std::string, JobState>, std::uint64_t> counts;
  EachCommand make = [&](std::uint32_t partition) { return command({"HGETALL", names.job_counts(partition)}); };
  EachCheck add = [&](std::uint32_t, RedisReply reply) {
    for (std::size_t at = 0; at + 1 < reply.size(); at += 2) {
      const std::string_view name = reply[at].text(); // "STATE ROUTE"
      if (name.size() < 2) continue;
      const auto state = static_cast<JobState>(name[0] - '0');
      counts[{std::string(name.substr(2)), state}] += static_cast<std::uint64_t>(reply[at + 1].integer().value_or(0));
    }
    return ok_status();
  };
  const Status status = co_await on_all_partitions(loop, servers, names.partitions(), Clock::now() + kStepTimeout,
                                                   std::move(make), std::move(add));
  if (!status) co_return done(status.fault());
  std::vector<JobCount> listed;
  for (const auto& [what, count] : counts) listed.push_back({what.first, what.second, count});
  done(std::move(listed));
}

} // namespace oncekey::redis
