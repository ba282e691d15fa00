#include "store/redis/browsing.h"

#include "redis/server_error.h"
#include "store/common/listing.h"
#include "store/redis/record_value.h"
#include "store/redis/scripts.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace oncekey::redis {
namespace {

// Some hundred microseconds of a server's time for each step.
constexpr std::string_view kLooksPerStep = "500";
constexpr std::chrono::seconds kLookTimeout{5};
// A look ends with what it has when it took so long.
constexpr std::chrono::seconds kLookMax{10};
// Enough for head and texts of nearly all records; the others are asked for again, with more.
constexpr std::size_t kFrontBytes = 4096;
constexpr std::string_view kFrontEnd = "4095";
constexpr std::string_view kLongFrontEnd = "131071";
// Expired entries removed in one count.
constexpr std::size_t kForgottenPerCount = 256;

using Replies = std::vector<OwnedReply>;

// Sends all and then waits: one round trip. Error replies are among the answers.
Task<Result<Replies>> ask_all(std::shared_ptr<RedisConnection> connection, std::vector<std::string> commands) {
  Replies replies;
  if (commands.empty()) co_return replies;
  const auto earlier = std::make_shared<std::vector<Result<OwnedReply>>>();
  const MonotonicTime deadline = Clock::now() + kLookTimeout;
  for (std::size_t i = 0; i + 1 < commands.size(); ++i) {
    connection->send(commands[i], deadline,
                     [earlier](Result<OwnedReply> reply) { earlier->push_back(std::move(reply)); });
  }
  // Answers come in the order of the commands: behind this one all are there.
  Result<OwnedReply> last = co_await connection->ask(std::move(commands.back()), deadline);
  for (Result<OwnedReply>& reply : *earlier) {
    if (!reply) co_return std::move(reply).fault();
    replies.push_back(*std::move(reply));
  }
  if (!last) co_return std::move(last).fault();
  replies.push_back(*std::move(last));
  co_return replies;
}

bool is_cut(std::string_view front) {
  if (front.size() < kFrontBytes) return false;
  std::uint32_t texts = 0;
  std::memcpy(&texts, front.data() + kValueHeadBytes - sizeof texts, sizeof texts);
  return kValueHeadBytes + texts > front.size();
}

// Gathers what a look meets.
class Look {
 public:
  Look(const KeyNames& names, const BrowseRequest& request, Time now)
      : names_(names), request_(request), now_(now), newest_(request.limit) {}

  bool may_go_on() const { return looked_ < request_.look_max && Clock::now() < deadline_; }
  void missed_some() { all_ = false; }

  Task<Status> at_records(std::shared_ptr<RedisConnection> connection, std::vector<RecordId> ids) {
    std::erase_if(ids, [&](const RecordId& id) { return !seen_.insert(id).second; });
    Status status = co_await at_fronts(connection, ids, kFrontEnd);
    if (status && !cut_.empty()) {
      std::vector<RecordId> again = std::exchange(cut_, {});
      status = co_await at_fronts(connection, again, kLongFrontEnd);
    }
    co_return status;
  }

  BrowsePage page() && { return std::move(newest_).page(looked_, all_); }

 private:
  Task<Status> at_fronts(std::shared_ptr<RedisConnection> connection, std::vector<RecordId> ids, std::string_view end) {
    std::vector<std::string> commands;
    for (const RecordId& id : ids) commands.push_back(command({"GETRANGE", names_.record(id), "0", end}));
    const Result<Replies> replies = co_await ask_all(connection, std::move(commands));
    if (!replies) co_return replies.fault();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const RedisReply reply = (*replies)[i].look();
      // Gone or elsewhere since; neither is a reason to show nothing at all.
      if (reply.is_error() || reply.text().empty()) continue;
      if (end == kFrontEnd && is_cut(reply.text())) {
        cut_.push_back(ids[i]);
        continue;
      }
      Result<Record> record = decode_value(reply.text(), ReadResponse::summary);
      if (!record) co_return std::move(record).fault();
      ++looked_;
      const BrowsePlace place{record->first_received, ids[i]};
      if (!comes_after(request_.after, place) || !is_browsed(request_, *record, now_)) continue;
      newest_.offer(place, [&] { return Listed{ids[i], as_listed(*std::move(record))}; });
    }
    co_return ok_status();
  }

  const KeyNames& names_;
  const BrowseRequest& request_;
  const Time now_;
  const MonotonicTime deadline_ = Clock::now() + kLookMax;
  NewestLines newest_;
  std::set<RecordId> seen_; // a record may be met twice while slots or hash tables move
  std::vector<RecordId> cut_;
  std::uint64_t looked_ = 0;
  bool all_ = true;
};

Task<Status> look_through(std::shared_ptr<RedisConnection> connection, const KeyNames& names, Look& look) {
  const std::string pattern = names.records_pattern("");
  std::string cursor = "0";
  do {
    if (!look.may_go_on()) {
      look.missed_some();
      break;
    }
    std::string scan = command({"SCAN", cursor, "MATCH", pattern, "COUNT", kLooksPerStep, "TYPE", "string"});
    const Result<OwnedReply> reply = co_await connection->ask(std::move(scan), Clock::now() + kLookTimeout);
    if (!reply) co_return reply.fault();
    if (reply->look().is_error()) co_return fault_of(parse_error(reply->look().text()), connection->host());
    cursor = std::string(reply->look()[0].text());
    const RedisReply keys = reply->look()[1];
    std::vector<RecordId> ids;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (const std::optional<RecordId> id = names.id_of(keys[i].text())) ids.push_back(*id);
    }
    const Status looked = co_await look.at_records(connection, std::move(ids));
    if (!looked) co_return looked;
  } while (cursor != "0" && !cursor.empty());
  co_return ok_status();
}

struct UnsettledField {
  RecordId id;
  std::string name;
  std::string value;
  bool held = false;
  Time lease_until{};
  Time expires_at{};
};

// "LEASE EXPIRY"; a lease of 0 is that of an indeterminate key.
std::optional<UnsettledField> parse_field(std::string_view name, std::string_view value) {
  if (!name.starts_with(kUnsettledField)) return std::nullopt;
  const std::optional<RecordId> id = record_id_from_hex(name.substr(kUnsettledField.size()));
  if (!id) return std::nullopt;
  std::int64_t lease = 0;
  std::int64_t expiry = 0;
  const char* const end = value.data() + value.size();
  const auto [blank, lease_error] = std::from_chars(value.data(), end, lease);
  if (lease_error != std::errc{} || blank == end || *blank != ' ') return std::nullopt;
  if (std::from_chars(blank + 1, end, expiry).ec != std::errc{}) return std::nullopt;
  return UnsettledField{*id,        std::string(name),   std::string(value),
                        lease == 0, Time{Millis{lease}}, Time{Millis{expiry}}};
}

// What the markers of one server have of it.
struct UnsettledFields {
  std::shared_ptr<RedisConnection> connection;
  std::vector<std::pair<std::uint32_t, UnsettledField>> fields; // with their partitions
};

// All markers of a server are asked at once. A large one comes in steps, at most `fields_max` of it.
Task<Result<UnsettledFields>> unsettled_at(std::shared_ptr<RedisConnection> connection, const KeyNames& names,
                                           std::vector<std::uint32_t> partitions, std::size_t fields_max, bool& all) {
  UnsettledFields found{connection, {}};
  const std::string pattern = fmt::format("{}*", kUnsettledField);
  std::vector<std::string> cursors(partitions.size(), "0");
  while (!partitions.empty()) {
    if (found.fields.size() >= fields_max) {
      all = false;
      break;
    }
    std::vector<std::string> commands;
    for (std::size_t i = 0; i < partitions.size(); ++i) {
      commands.push_back(
          command({"HSCAN", names.marker(partitions[i]), cursors[i], "MATCH", pattern, "COUNT", kLooksPerStep}));
    }
    const Result<Replies> replies = co_await ask_all(connection, std::move(commands));
    if (!replies) co_return replies.fault();
    std::vector<std::uint32_t> going_on;
    std::vector<std::string> going_on_at;
    for (std::size_t i = 0; i < partitions.size(); ++i) {
      const RedisReply reply = (*replies)[i].look();
      if (reply.is_error()) co_return fault_of(parse_error(reply.text()), connection->host());
      const RedisReply pairs = reply[1];
      for (std::size_t at = 0; at + 1 < pairs.size(); at += 2) {
        auto field = parse_field(pairs[at].text(), pairs[at + 1].text());
        if (field) found.fields.emplace_back(partitions[i], *std::move(field));
      }
      if (reply[0].text() == "0" || reply[0].text().empty()) continue;
      going_on.push_back(partitions[i]);
      going_on_at.emplace_back(reply[0].text());
    }
    partitions = std::move(going_on);
    cursors = std::move(going_on_at);
  }
  co_return found;
}

Result<std::map<std::shared_ptr<Link>, std::vector<std::uint32_t>>> partitions_by_server(const Servers& servers,
                                                                                         const KeyNames& names) {
  std::map<std::shared_ptr<Link>, std::vector<std::uint32_t>> partitions;
  for (std::uint32_t partition = 0; partition < names.partitions(); ++partition) {
    const std::shared_ptr<Link> link = servers.owner_of(partition);
    if (!link) return unavailable("the cluster's map is not known");
    if (!link->is_ready()) return link->why_not();
    partitions[link].push_back(partition);
  }
  return partitions;
}

Task<Status> look_at_unsettled(Servers& servers, const KeyNames& names, const BrowseRequest& request, Time now,
                               Look& look) {
  const auto partitions = partitions_by_server(servers, names);
  if (!partitions) co_return partitions.fault();
  for (const auto& [link, own] : *partitions) {
    if (!look.may_go_on()) {
      look.missed_some();
      break;
    }
    bool all = true;
    const Result<UnsettledFields> found = co_await unsettled_at(link->connection(), names, own, request.look_max, all);
    if (!found) co_return found.fault();
    if (!all) look.missed_some();
    std::vector<RecordId> ids;
    for (const auto& [partition, field] : found->fields) {
      if (field.expires_at > now && (field.held || field.lease_until <= now)) ids.push_back(field.id);
    }
    const Status looked = co_await look.at_records(found->connection, std::move(ids));
    if (!looked) co_return looked;
  }
  co_return ok_status();
}

Task<Result<BrowsePage>> browse(Servers& servers, const KeyNames& names, const BrowseRequest& request, Time now) {
  Look look(names, request, now);
  if (only_waiting(request.shown)) {
    const Status looked = co_await look_at_unsettled(servers, names, request, now, look);
    if (!looked) co_return looked.fault();
    co_return std::move(look).page();
  }
  for (const std::shared_ptr<Link>& link : servers.primaries()) {
    if (!link->is_ready()) co_return link->why_not();
    const Status looked = co_await look_through(link->connection(), names, look);
    if (!looked) co_return looked.fault();
  }
  co_return std::move(look).page();
}

Task<Result<WaitingKeys>> count(Servers& servers, const KeyNames& names, Time now) {
  WaitingKeys counted;
  const auto partitions = partitions_by_server(servers, names);
  if (!partitions) co_return partitions.fault();
  for (const auto& [link, own] : *partitions) {
    bool all = true;
    const Result<UnsettledFields> found = co_await unsettled_at(link->connection(), names, own, kWaitingCountMax, all);
    if (!found) co_return found.fault();
    std::vector<std::string> forget;
    for (const auto& [partition, field] : found->fields) {
      if (field.expires_at <= now) {
        if (forget.size() < kForgottenPerCount) {
          const std::string marker = names.marker(partition);
          forget.push_back(command({"EVAL", kForgetFieldScript, "1", marker, field.name, field.value}));
        }
      } else if (field.held) {
        ++counted.indeterminate;
      } else if (field.lease_until <= now) {
        ++counted.abandoned;
      }
    }
    const Result<Replies> forgotten = co_await ask_all(found->connection, std::move(forget));
    if (!forgotten) co_return forgotten.fault();
  }
  co_return counted;
}

} // namespace

Task<void> browse_records(Servers& servers, const KeyNames& names, BrowseRequest request, Time now,
                          Done<BrowsePage> done) {
  Result<BrowsePage> page = co_await browse(servers, names, request, now);
  done(std::move(page));
}

Task<void> count_waiting_records(Servers& servers, const KeyNames& names, Time now, Done<WaitingKeys> done) {
  Result<WaitingKeys> counted = co_await count(servers, names, now);
  done(std::move(counted));
}

} // namespace oncekey::redis
