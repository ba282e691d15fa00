#include "core/job_codec.h"

#include "core/codec_parts.h"

#include <oncekey/check.h>

#include <optional>
#include <utility>

namespace oncekey {
namespace {

using codec::Cursor;
using codec::put;

// Bits of the flags byte.
constexpr std::uint8_t kJobOrdered = 1;
constexpr std::uint8_t kJobMessageKept = 2;

} // namespace

void encode_job(const StoredJob& job, std::string& out) {
  const std::size_t begin = out.size();
  out.reserve(begin + 128 + job.route.size() + job.key.size() + job.last.reason.size() + job.why_dead.size());
  put<std::uint8_t>(out, kJobFormat);
  put<std::uint8_t>(out, static_cast<std::uint8_t>(job.state));
  const int flags = (job.ordered ? kJobOrdered : 0) | (job.message_kept ? kJobMessageKept : 0);
  put<std::uint8_t>(out, static_cast<std::uint8_t>(flags));
  put<std::uint64_t>(out, job.fence);
  put<std::uint32_t>(out, job.attempts);
  codec::put_time(out, job.staged_at);
  codec::put_time(out, job.due_at);
  codec::put_time(out, job.ended_at);
  codec::put_time(out, job.expires_at);
  codec::put_array(out, job.fingerprint.bytes);
  codec::put_text(out, job.route);
  codec::put_text(out, job.key);
  put<std::uint16_t>(out, static_cast<std::uint16_t>(job.last.status));
  codec::put_text(out, job.last.reason);
  codec::put_time(out, job.last_at);
  codec::put_text(out, job.why_dead);
  codec::put_checksum(out, begin);
}

Result<StoredJob> decode_job(const RecordId& id, std::string_view bytes) {
  Result<Cursor> content = codec::content_of(bytes, "job", kJobFormat);
  if (!content) return std::move(content).fault();
  Cursor& cursor = *content;
  StoredJob job;
  job.id = id;
  const std::uint8_t state = cursor.number<std::uint8_t>();
  const std::uint8_t flags = cursor.number<std::uint8_t>();
  job.state = static_cast<JobState>(state);
  job.ordered = (flags & kJobOrdered) != 0;
  job.message_kept = (flags & kJobMessageKept) != 0;
  job.fence = cursor.number<std::uint64_t>();
  job.attempts = cursor.number<std::uint32_t>();
  job.staged_at = cursor.time();
  job.due_at = cursor.time();
  job.ended_at = cursor.time();
  job.expires_at = cursor.time();
  cursor.array(job.fingerprint.bytes);
  job.route = cursor.text();
  job.key = cursor.text();
  job.last.status = cursor.number<std::uint16_t>();
  job.last.reason = cursor.text();
  job.last_at = cursor.time();
  job.why_dead = cursor.text();
  const bool known = state >= static_cast<std::uint8_t>(JobState::waiting) &&
                     state <= static_cast<std::uint8_t>(JobState::dead) &&
                     (flags & ~(kJobOrdered | kJobMessageKept)) == 0;
  if (!known || !cursor.ok() || !cursor.at_end()) return codec::misshapen("job");
  return job;
}

void encode_message(const Message& message, std::string& out) {
  ONCEKEY_CHECK(message.headers.lines().size() <= kHeaderBytesMax, "stored headers are within their limit");
  ONCEKEY_CHECK(message.body.size() <= kBodyBytesMax, "a stored body is within its limit");
  const std::size_t begin = out.size();
  out.reserve(begin + 64 + message.target.size() + message.headers.lines().size() + message.body.size());
  put<std::uint8_t>(out, kMessageFormat);
  codec::put_text(out, message.method);
  codec::put_text(out, message.target);
  codec::put_bytes(out, message.headers.lines());
  codec::put_bytes(out, message.body);
  codec::put_checksum(out, begin);
}

Result<Message> decode_message(std::string_view bytes) {
  Result<Cursor> content = codec::content_of(bytes, "message", kMessageFormat);
  if (!content) return std::move(content).fault();
  Message message;
  message.method = content->text();
  message.target = content->text();
  const std::string_view lines = content->bytes(kHeaderBytesMax);
  const std::string_view body = content->bytes(kBodyBytesMax);
  if (!content->ok() || !content->at_end()) return codec::misshapen("message");
  std::optional<Headers> headers = Headers::from_lines(std::string(lines));
  if (!headers) return codec::misshapen("message");
  message.headers = *std::move(headers);
  message.body = body;
  return message;
}

} // namespace oncekey
