#include "core/job_codec.h"

#include "core/codec_parts.h"

#include <oncekey/check.h>

#include <optional>
#include <utility>

namespace oncekey {
namespace {

using codec::Cursor;

// Bits of the flags byte.
constexpr std::uint8_t kJobOrdered = 1;
constexpr std::uint8_t kJobMessageKept = 2;

// Everything between format and checksum. `status` is that of the last attempt.
template <class Place, class Job, class Byte, class Status>
void job_fields(Place& place, Byte& state, Byte& flags, Job& job, Status& status) {
  codec::each(place, state, flags, job.fence, job.attempts, job.staged_at, job.due_at, job.ended_at, job.expires_at,
              job.fingerprint.bytes, job.route, job.key, status, job.last.reason, job.last_at, job.why_dead);
}

} // namespace

void encode_job(const StoredJob& job, std::string& out) {
  const std::size_t begin = out.size();
  out.reserve(begin + 128 + job.route.size() + job.key.size() + job.last.reason.size() + job.why_dead.size());
  codec::field(out, kJobFormat);
  const auto flags =
      static_cast<std::uint8_t>((job.ordered ? kJobOrdered : 0) | (job.message_kept ? kJobMessageKept : 0));
  const auto state = static_cast<std::uint8_t>(job.state);
  const auto status = static_cast<std::uint16_t>(job.last.status);
  job_fields(out, state, flags, job, status);
  codec::put_checksum(out, begin);
}

Result<StoredJob> decode_job(const RecordId& id, std::string_view bytes) {
  Result<Cursor> content = codec::content_of(bytes, "job", kJobFormat);
  if (!content) return std::move(content).fault();
  Cursor& cursor = *content;
  StoredJob job;
  job.id = id;
  std::uint8_t state = 0;
  std::uint8_t flags = 0;
  std::uint16_t status = 0;
  job_fields(cursor, state, flags, job, status);
  job.state = static_cast<JobState>(state);
  job.ordered = (flags & kJobOrdered) != 0;
  job.message_kept = (flags & kJobMessageKept) != 0;
  job.last.status = status;
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
  codec::each(out, kMessageFormat, message.method, message.target);
  codec::put_bytes(out, message.headers.lines());
  codec::put_bytes(out, message.body);
  codec::put_checksum(out, begin);
}

Result<Message> decode_message(std::string_view bytes) {
  Result<Cursor> content = codec::content_of(bytes, "message", kMessageFormat);
  if (!content) return std::move(content).fault();
  Message message;
  codec::each(*content, message.method, message.target);
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
