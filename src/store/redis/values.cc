#include "store/redis/values.h"

#include "base/faults.h"
#include "core/attempt_lines.h"
#include "core/record_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace oncekey::redis {
namespace {

constexpr std::uint8_t kValueFormat = 1;
constexpr std::size_t kHeadBytes = 95; // up to the texts
constexpr std::uint8_t kTookOver = 1;
constexpr std::uint8_t kRerun = 2;

// Where the texts end, and the answer begins.
std::size_t answer_at(std::string_view value) {
  codec::Cursor length(value.substr(kHeadBytes - sizeof(std::uint32_t)));
  return kHeadBytes + length.number<std::uint32_t>();
}

bool is_completed(std::string_view value) { return value[1] == static_cast<char>(RecordState::completed); }

} // namespace

bool is_cut_in_texts(std::string_view front) {
  if (front.size() < kHeadBytes) return false;
  return answer_at(front) + (is_completed(front) ? sizeof(std::uint16_t) : 0) > front.size();
}

Result<Record> decode_value(std::string_view value, ReadResponse response) {
  codec::Cursor cursor(value);
  const auto format = cursor.number<std::uint8_t>();
  if (format > kValueFormat) {
    return newer_format("a record in Redis", format, kValueFormat);
  }
  Record record;
  std::uint8_t state = 0, flags = 0;
  std::uint32_t texts = 0; // they tell their own lengths
  std::string context_bytes;
  codec::each(cursor, state, flags, record.settled_at, record.first_received, record.expires_at, record.lease_until,
              record.fence, record.claimed_by, record.fingerprint.bytes, texts, record.route, record.key, record.method,
              record.target, context_bytes);
  Result<ClaimContext> context = decode_context(context_bytes);
  if (!cursor.ok() || !context || format == 0 || state < 1 || state > 3) {
    return corrupt("oncekey did not write this record in Redis; look for another program that uses this server");
  }
  record.context = *std::move(context);
  record.state = static_cast<RecordState>(state);
  record.took_over = (flags & kTookOver) != 0;
  record.rerun = (flags & kRerun) != 0;
  if (record.state != RecordState::completed) return record;
  const DecodeBody body = response == ReadResponse::whole ? DecodeBody::yes : DecodeBody::no;
  const std::string_view answer = value.substr(std::min(answer_at(value), value.size()));
  const auto status = codec::Cursor(answer).number<std::uint16_t>();
  Result<StoredResponse> stored = decode_response(answer.substr(std::min(sizeof status, answer.size())), body);
  if (stored) {
    record.response = *std::move(stored);
  } else if (response == ReadResponse::summary) {
    record.response.emplace().status = status; // the response itself is too long to be fetched for a listing
  } else {
    return std::move(stored).fault();
  }
  return record;
}

std::string encode_identity(const ClaimRequest& request) {
  std::string context;
  encode_context(request.context, context);
  std::string out;
  out.reserve(128 + request.route.size() + request.key.size() + request.method.size() + request.target.size() +
              context.size());
  codec::each(out, request.token, request.fingerprint.bytes);
  const std::size_t length_at = out.size();
  const std::uint32_t unknown = 0;
  codec::each(out, unknown, request.route, request.key, request.method, request.target, context);
  const std::string length = encode_number(static_cast<std::uint32_t>(out.size() - length_at - sizeof unknown));
  out.replace(length_at, length.size(), length);
  return out;
}

std::string encode_times(const ClaimRequest& request) {
  std::string out;
  for (const Millis time : {request.retention, request.lease}) {
    codec::field(out, std::max<std::int64_t>(0, time.count()));
  }
  return out;
}

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
  std::optional<std::vector<Attempt>> tried = decode_attempts(by_name["tried"].text());
  if (number("format") != 1 || !tried || state < 1 || state > static_cast<int>(JobState::dead) ||
      fingerprint.size() != job.fingerprint.bytes.size()) {
    return corrupt("oncekey did not write this job in Redis; look for another program that uses this server");
  }
  std::memcpy(job.fingerprint.bytes.data(), fingerprint.data(), fingerprint.size());
  job.state = static_cast<JobState>(state);
  job.tried = *std::move(tried);
  job.ordered = number("ordered") == 1;
  job.message_kept = number("message_kept") == 1;
  job.fence = static_cast<std::uint64_t>(number("fence"));
  job.attempts = static_cast<std::uint32_t>(number("attempts"));
  job.staged_at = time("staged_at");
  job.due_at = time("due_at");
  job.ended_at = time("ended_at");
  job.expires_at = time("expires_at");
  job.why_dead = text("why_dead");
  job.route = text("route");
  job.key = text("key");
  return job;
}

} // namespace oncekey::redis
