#include "store/redis/listing.h"

#include "core/job_transitions.h"
#include "store/common/listing.h"
#include "store/redis/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

namespace oncekey::redis {
namespace {

// Some hundred microseconds of a server's time for each step.
constexpr std::string_view kKeysPerStep = "500";
// Enough to make the round trips few, and not so many that other calls wait for their answers.
constexpr std::ptrdiff_t kReadsPerStep = 100;
constexpr std::chrono::seconds kStepTimeout{5};
// A listing fails when it takes so long; a look for browsing ends with what it has.
constexpr std::chrono::seconds kListingMax{30};
constexpr std::chrono::seconds kBrowsingMax{10};
// The last byte to read of a record. For a listing: head and texts, and responses without a large body; of a longer
// one the status is enough. For browsing: head and texts of nearly all records. Those with longer texts are asked for
// again, with more.
constexpr std::string_view kListedEnd = "65536";
constexpr std::string_view kBrowsedEnd = "4095";
constexpr std::string_view kLongEnd = "131071";
// Expired entries removed in one count.
constexpr std::size_t kForgottenPerCount = 256;

// KEYS: a marker. ARGV: the name and the value of its field for an unsettled record (script_call.h). Removes the field
// unless it has changed since.
constexpr std::string_view kForgetFieldScript = R"lua(
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
)lua";

bool is_id_prefix(std::string_view text) {
  return text.size() <= 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

MonotonicTime step_deadline() { return Clock::now() + kStepTimeout; }

// Reads records or jobs until it has enough.
class Look {
 public:
  explicit Look(Servers& servers) : servers_(servers), names_(servers.store().names), now_(servers.store().now()) {}
  virtual ~Look() = default;

  // At all keys that fit a pattern.
  Task<Status> at_keys(std::string pattern, std::string_view type) {
    for (const std::shared_ptr<Link>& link : servers_.primaries()) {
      if (!link->is_ready()) co_return link->why_not();
      const std::shared_ptr<RedisConnection> connection = link->connection();
      std::string cursor = "0";
      do {
        Result<bool> more = wants_more();
        if (more && *more) more = co_await at_next_keys(connection, pattern, type, cursor);
        if (!more) co_return more.fault();
        if (!*more) co_return ok_status();
      } while (cursor != "0" && !cursor.empty());
    }
    co_return ok_status();
  }

  // At these, of one server. Answers whether more are wanted.
  Task<Result<bool>> at_ids(std::shared_ptr<RedisConnection> connection, std::vector<RecordId> ids) {
    std::erase_if(ids, [&](const RecordId& id) { return !seen_.insert(id).second; });
    while (!ids.empty()) {
      const Result<bool> more = wants_more();
      if (!more || !*more) co_return more;
      const std::vector<RecordId> some(ids.end() - std::min(std::ssize(ids), kReadsPerStep), ids.end());
      ids.resize(ids.size() - some.size());
      std::vector<std::string> commands;
      for (const RecordId& id : some) commands.push_back(read_command(id));
      const std::vector<Result<OwnedReply>> replies =
          co_await connection->ask_all(std::move(commands), step_deadline());
      for (std::size_t i = 0; i < some.size(); ++i) {
        if (!replies[i]) co_return replies[i].fault();
        const RedisReply reply = replies[i]->look();
        // Gone or elsewhere since; neither is a reason to show nothing at all.
        if (reply.is_error() || (reply.text().empty() && reply.size() == 0)) continue;
        const Result<Read> read = add(some[i], reply);
        if (!read) co_return read.fault();
        if (*read == Read::again) ids.push_back(some[i]);
      }
    }
    co_return true;
  }

 protected:
  enum class Read { once, again };

  // Asked while there is more to read.
  virtual Result<bool> wants_more() = 0;
  virtual std::string read_command(const RecordId& id) const = 0;
  virtual Result<Read> add(const RecordId& id, RedisReply reply) = 0;

  // For listings.
  Result<bool> in_time(bool more) const {
    if (!more || Clock::now() < began_ + kListingMax) return more;
    return unavailable(
        fmt::format("the listing took longer than {} s; ask for those whose id begins with some digits, or for fewer",
                    kListingMax.count()));
  }

  Servers& servers_;
  const KeyNames& names_;
  const Time now_;
  const MonotonicTime began_ = Clock::now();

 private:
  Task<Result<bool>> at_next_keys(std::shared_ptr<RedisConnection> connection, std::string pattern,
                                  std::string_view type, std::string& cursor) {
    const Result<OwnedReply> reply = co_await connection->get(step_deadline(), "SCAN", cursor, "MATCH", pattern,
                                                              "COUNT", kKeysPerStep, "TYPE", type);
    if (!reply) co_return reply.fault();
    cursor = std::string(reply->look()[0].text());
    const RedisReply keys = reply->look()[1];
    std::vector<RecordId> ids;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (const std::optional<RecordId> id = names_.id_of(keys[i].text())) ids.push_back(*id);
    }
    Result<bool> more = co_await at_ids(connection, std::move(ids));
    co_return more;
  }

  std::set<RecordId> seen_; // one may be met twice while slots or hash tables move
};

class RecordLook : public Look {
 public:
  RecordLook(Servers& servers, std::string_view end) : Look(servers), end_(end) {}

 protected:
  virtual void show(const RecordId& id, Record record) = 0;

 private:
  std::string read_command(const RecordId& id) const override {
    return command({"GETRANGE", names_.record(id), "0", cut_.contains(id) ? kLongEnd : end_});
  }
  Result<Read> add(const RecordId& id, RedisReply reply) override {
    if (is_cut_in_texts(reply.text()) && cut_.insert(id).second) return Read::again;
    Result<Record> record = decode_value(reply.text(), ReadResponse::summary);
    if (!record) return std::move(record).fault();
    show(id, *std::move(record));
    return Read::once;
  }

  const std::string_view end_;
  std::set<RecordId> cut_; // these have been read once
};

class RecordList final : public RecordLook {
 public:
  RecordList(Servers& servers, const ListRequest& request) : RecordLook(servers, kListedEnd), request_(request) {}
  std::vector<Listed> listed;

 private:
  Result<bool> wants_more() override { return in_time(listed.size() < request_.limit); }
  void show(const RecordId& id, Record record) override {
    if (listed.size() < request_.limit && is_listed(request_, id, record, now_))
      listed.push_back({id, as_listed(std::move(record))});
  }

  const ListRequest& request_;
};

class JobList final : public Look {
 public:
  JobList(Servers& servers, const JobListRequest& request) : Look(servers), request_(request) {}
  JobPage page;

 private:
  Result<bool> wants_more() override { return in_time(page.whole); }
  std::string read_command(const RecordId& id) const override { return command({"HGETALL", names_.job(id)}); }
  Result<Read> add(const RecordId& id, RedisReply reply) override {
    Result<StoredJob> job = decode_job_fields(id, reply);
    if (!job) return std::move(job).fault();
    const bool listed = is_listed(request_, *job, now_);
    if (++looked_ > request_.look_max || (listed && page.jobs.size() == request_.limit)) {
      page.whole = false;
    } else if (listed) {
      page.jobs.push_back(*std::move(job));
    }
    return Read::once;
  }

  const JobListRequest& request_;
  std::size_t looked_ = 0;
};

struct UnsettledField {
  std::uint32_t partition = 0;
  RecordId id;
  std::string name;
  std::string value;
  bool held = false;
  Time lease_until{};
  Time expires_at{};
};

// "LEASE EXPIRY"; a lease of 0 is that of an indeterminate key.
std::optional<UnsettledField> parse_field(const KeyNames& names, std::uint32_t partition, std::string_view name,
                                          std::string_view value) {
  const std::optional<RecordId> id = names.id_of(name);
  if (!id) return std::nullopt;
  std::int64_t lease = 0;
  std::int64_t expiry = 0;
  const char* const end = value.data() + value.size();
  const auto [blank, lease_error] = std::from_chars(value.data(), end, lease);
  if (lease_error != std::errc{} || blank == end || *blank != ' ') return std::nullopt;
  if (std::from_chars(blank + 1, end, expiry).ec != std::errc{}) return std::nullopt;
  return UnsettledField{
      partition, *id, std::string(name), std::string(value), lease == 0, Time{Millis{lease}}, Time{Millis{expiry}}};
}

// What the markers of one server have of it.
struct UnsettledFields {
  std::vector<UnsettledField> fields;
  bool all = true;
};

// All markers of a server are asked at once. A large one comes in steps, at most `fields_max` of it.
Task<Result<UnsettledFields>> unsettled_at(std::shared_ptr<RedisConnection> connection, const KeyNames& names,
                                           std::vector<std::uint32_t> partitions, std::size_t fields_max) {
  UnsettledFields found;
  const std::string pattern = names.records_pattern("");
  std::map<std::uint32_t, std::string> cursors; // of the partitions that have more
  for (const std::uint32_t partition : partitions) cursors[partition] = "0";
  while (!cursors.empty() && found.fields.size() < fields_max) {
    std::vector<std::string> commands;
    for (const auto& [partition, cursor] : cursors) {
      commands.push_back(command({"HSCAN", names.marker(partition), cursor, "MATCH", pattern, "COUNT", kKeysPerStep}));
    }
    std::vector<Result<OwnedReply>> replies = co_await connection->ask_all(std::move(commands), step_deadline());
    auto at = cursors.begin();
    for (Result<OwnedReply>& each : replies) {
      const Result<OwnedReply> reply = without_error(std::move(each), connection->host());
      if (!reply) co_return reply.fault();
      const RedisReply pairs = reply->look()[1];
      for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
        auto field = parse_field(names, at->first, pairs[i].text(), pairs[i + 1].text());
        if (field) found.fields.push_back(*std::move(field));
      }
      at->second = std::string(reply->look()[0].text());
      at = at->second == "0" || at->second.empty() ? cursors.erase(at) : std::next(at);
    }
  }
  found.all = cursors.empty();
  co_return found;
}

class BrowseLook final : public RecordLook {
 public:
  BrowseLook(Servers& servers, const BrowseRequest& request)
      : RecordLook(servers, kBrowsedEnd), request_(request), newest_(request.limit) {}

  // At the keys that are not settled.
  Task<Status> at_unsettled() {
    const Result<Servers::Shares> servers = servers_.shares();
    if (!servers) co_return servers.fault();
    for (const auto& [connection, partitions] : *servers) {
      if (!*wants_more()) break;
      const Result<UnsettledFields> found = co_await unsettled_at(connection, names_, partitions, request_.look_max);
      if (!found) co_return found.fault();
      if (!found->all) all_ = false;
      std::vector<RecordId> ids;
      for (const UnsettledField& field : found->fields) {
        if (field.expires_at > now_ && (field.held || field.lease_until <= now_)) ids.push_back(field.id);
      }
      const Result<bool> looked = co_await at_ids(connection, std::move(ids));
      if (!looked) co_return looked.fault();
    }
    co_return ok_status();
  }

  BrowsePage page() && { return std::move(newest_).page(looked_, all_); }

 private:
  Result<bool> wants_more() override {
    const bool more = looked_ < request_.look_max && Clock::now() < began_ + kBrowsingMax;
    if (!more) all_ = false;
    return more;
  }
  void show(const RecordId& id, Record record) override {
    ++looked_;
    const BrowsePlace place{record.first_received, id};
    if (!comes_after(request_.after, place) || !is_browsed(request_, record, now_)) return;
    newest_.offer(place, [&] { return Listed{id, as_listed(std::move(record))}; });
  }

  const BrowseRequest& request_;
  NewestLines newest_;
  std::uint64_t looked_ = 0;
  bool all_ = true;
};

} // namespace

Task<Result<std::vector<Listed>>> list_records(Servers& servers, ListRequest request) {
  RecordList list(servers, request);
  if (!is_id_prefix(request.id_prefix)) co_return std::move(list.listed);
  const Status status = co_await list.at_keys(servers.store().names.records_pattern(request.id_prefix), "string");
  if (!status) co_return status.fault();
  co_return std::move(list.listed);
}

Task<Result<JobPage>> list_jobs(Servers& servers, JobListRequest request) {
  JobList list(servers, request);
  if (!is_id_prefix(request.id_prefix)) co_return std::move(list.page);
  const Status status = co_await list.at_keys(servers.store().names.jobs_pattern(request.id_prefix), "hash");
  if (!status) co_return status.fault();
  co_return std::move(list.page);
}

Task<Result<BrowsePage>> browse_records(Servers& servers, BrowseRequest request) {
  BrowseLook look(servers, request);
  Status status = ok_status();
  if (only_waiting(request.shown)) {
    status = co_await look.at_unsettled();
  } else {
    status = co_await look.at_keys(servers.store().names.records_pattern(""), "string");
  }
  if (!status) co_return status.fault();
  co_return std::move(look).page();
}

Task<Result<WaitingKeys>> count_waiting_records(Servers& servers) {
  WaitingKeys counted;
  const KeyNames& names = servers.store().names;
  const Time now = servers.store().now();
  const Result<Servers::Shares> shares = servers.shares();
  if (!shares) co_return shares.fault();
  for (const auto& [connection, partitions] : *shares) {
    const Result<UnsettledFields> found = co_await unsettled_at(connection, names, partitions, kWaitingCountMax);
    if (!found) co_return found.fault();
    std::vector<std::string> forget;
    for (const UnsettledField& field : found->fields) {
      if (field.expires_at > now) {
        if (field.held) ++counted.indeterminate;
        if (!field.held && field.lease_until <= now) ++counted.abandoned;
      } else if (forget.size() < kForgottenPerCount) {
        const std::string marker = names.marker(field.partition);
        forget.push_back(command({"EVAL", kForgetFieldScript, "1", marker, field.name, field.value}));
      }
    }
    const std::vector<Result<OwnedReply>> forgotten = co_await connection->ask_all(std::move(forget), step_deadline());
    for (const Result<OwnedReply>& each : forgotten) {
      if (!each) co_return each.fault();
    }
  }
  co_return counted;
}

Task<Result<std::vector<JobCount>>> count_jobs(Servers& servers) {
  const KeyNames& names = servers.store().names;
  std::map<std::pair<std::string, JobState>, std::uint64_t> counts;
  Servers::EachCommand make = [&](std::uint32_t partition) {
    return command({"HGETALL", names.job_counts(partition)});
  };
  std::function<void(RedisReply)> add = [&](RedisReply reply) {
    for (std::size_t at = 0; at + 1 < reply.size(); at += 2) {
      const std::string_view name = reply[at].text(); // "STATE ROUTE"
      if (name.size() < 2) continue;
      const auto state = static_cast<JobState>(name[0] - '0');
      counts[{std::string(name.substr(2)), state}] += static_cast<std::uint64_t>(reply[at + 1].integer().value_or(0));
    }
  };
  const Status status = co_await servers.on_all_partitions(std::move(make), std::move(add));
  if (!status) co_return status.fault();
  std::vector<JobCount> listed;
  for (const auto& [what, count] : counts) listed.push_back({what.first, what.second, count});
  co_return listed;
}

} // namespace oncekey::redis
