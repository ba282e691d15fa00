#include "store/redis/job_value.h"

#include <cstring>
#include <map>
#include <string_view>

namespace oncekey::redis {

Result<StoredJob> decode_job_fields(const RecordId& id, RedisReply fields) {
  std::map<std::string_view, RedisReply> by_name;
  for (std::size_t at = 0; at + 1 < fields.size(); at += 2) by_name[fields[at].text()] = fields[at + 1];
  const auto number = [&](std::string_view name) { return by_name[name].integer().value_or(0); };
  const auto time = [&](std::string_view name) { return Time{Millis{number(name)}}; };
  const auto text = [&](std::string_view name) { return std::string(by_name[name].text()); };
  StoredJob job;
  job.id = id;
  const std::int64_t state = number("state");
  const std::string_view fingerprint = by_name["fingerprint"].text();
  if (number("format") != 1 || state < 1 || state > static_cast<int>(JobState::dead) ||
      fingerprint.size() != job.fingerprint.bytes.size()) {
    return corrupt("a job in Redis is not one that oncekey has written; look at what else uses this server");
  }
  std::memcpy(job.fingerprint.bytes.data(), fingerprint.data(), fingerprint.size());
  job.state = static_cast<JobState>(state);
  job.ordered = number("ordered") == 1;
  job.message_kept = number("message_kept") == 1;
  job.fence = static_cast<std::uint64_t>(number("fence"));
  job.attempts = static_cast<std::uint32_t>(number("attempts"));
  job.staged_at = time("staged_at");
  job.due_at = time("due_at");
  job.ended_at = time("ended_at");
  job.expires_at = time("expires_at");
  job.last_at = time("last_at");
  job.last = {static_cast<int>(number("last_status")), text("last_reason")};
  job.why_dead = text("why_dead");
  job.route = text("route");
  job.key = text("key");
  return job;
}

} // namespace oncekey::redis
