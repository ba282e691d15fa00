#include "core/record_codec.h"

#include "base/faults.h"
#include "core/attempt_lines.h"

#include <oncekey/check.h>

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <optional>
#include <utility>

namespace oncekey {

namespace codec {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and written by plain copies");

constexpr std::size_t kChecksumBytes = 8;

} // namespace

void put_checksum(std::string& out, std::size_t begin) {
  field(out, std::uint64_t{XXH3_64bits(out.data() + begin, out.size() - begin)});
}

Result<Cursor> content_of(std::string_view bytes, std::string_view what, std::uint8_t newest_format) {
  if (bytes.size() < 1 + kChecksumBytes) return corrupt(fmt::format("a stored {} is damaged: it is cut short", what));
  const std::string_view content = bytes.substr(0, bytes.size() - kChecksumBytes);
  std::uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + content.size(), kChecksumBytes);
  if (XXH3_64bits(content.data(), content.size()) != checksum)
    return corrupt(fmt::format("a stored {} is damaged: its checksum does not match its bytes", what));
  Cursor cursor(content);
  const std::uint8_t format = cursor.number<std::uint8_t>();
  if (format > newest_format) {
    return newer_format(fmt::format("a stored {}", what), format, newest_format);
  }
  if (format != newest_format)
    return corrupt(fmt::format("a stored {} has the unknown format version {}", what, format));
  return cursor;
}

Fault misshapen(std::string_view what) {
  return corrupt(fmt::format("a stored {0} is damaged: its bytes do not have the shape of a {0}", what));
}

} // namespace codec

namespace {

using namespace codec;

// Bits of a record's flags.
using Flags = std::uint16_t;
constexpr Flags kTookOver = 1;
constexpr Flags kRerun = 2;
constexpr Flags kHasResponse = 4;
constexpr Flags kHasOmitted = 8;
constexpr Flags kOmittedWhole = 16;
constexpr Flags kStreamBegun = 32;
constexpr Flags kStreamWhole = 64;
constexpr Flags kSealedResponse = 128;
constexpr Flags kHasCourse = 256;
constexpr Flags kOfResponse =
    kHasResponse | kHasOmitted | kOmittedWhole | kStreamBegun | kStreamWhole | kSealedResponse | kHasCourse;
constexpr Flags kKnown = kOfResponse | kTookOver | kRerun;

// Bits of a context's flags.
constexpr std::uint8_t kHasTrace = 1;
constexpr std::uint8_t kHasAccount = 2;

Flags flags_of(const StoredResponse& response) {
  Flags flags = kHasResponse;
  if (response.omitted) {
    flags |= kHasOmitted;
    if (response.omitted->whole) flags |= kOmittedWhole;
  }
  if (response.stream == StreamMark::begun) flags |= kStreamBegun;
  if (response.stream == StreamMark::whole) flags |= kStreamWhole;
  if (response.sealed) flags |= kSealedResponse;
  if (response.course) flags |= kHasCourse;
  return flags;
}

Flags flags_of(const Record& record) {
  Flags flags = 0;
  if (record.took_over) flags |= kTookOver;
  if (record.rerun) flags |= kRerun;
  if (record.response) flags |= flags_of(*record.response);
  return flags;
}

std::size_t expected_size(const StoredResponse& response) {
  ONCEKEY_CHECK(response.headers.lines().size() <= kHeaderBytesMax, "stored headers are within their limit");
  ONCEKEY_CHECK(response.body.size() <= kBodyBytesMax, "a stored body is within its limit");
  return 128 + response.reason.size() + response.bytes();
}

std::size_t bytes_before_response(const Record& record) {
  return 256 + record.route.size() + record.key.size() + record.method.size() + record.target.size() +
         record.context.gateway.size();
}

void put_sealed(std::string& out, const Sealed& sealed) {
  ONCEKEY_CHECK(sealed.bytes.size() >= kSealTagBytes, "sealed bytes end with their tag");
  each(out, sealed.key_id, sealed.fence, sealed.nonce);
  put_bytes(out, sealed.bytes);
}

template <class Place, class AnyCourse>
void course_fields(Place& place, AnyCourse& course) {
  each(place, course.claimed_at, course.forwarded_at, course.renewals, course.renewed_at);
}

void put_response(std::string& out, const StoredResponse& response) {
  field(out, static_cast<std::uint16_t>(response.status));
  field(out, response.reason);
  if (response.omitted) each(out, response.omitted->length, response.omitted->sha256.bytes);
  if (response.course) course_fields(out, *response.course);
  if (response.sealed) return put_sealed(out, *response.sealed);
  put_bytes(out, response.headers.lines());
  put_bytes(out, response.body);
}

bool is_state(std::uint8_t value) {
  return value >= static_cast<std::uint8_t>(RecordState::in_progress) &&
         value <= static_cast<std::uint8_t>(RecordState::indeterminate);
}

std::shared_ptr<const Sealed> read_sealed(Cursor& cursor, DecodeBody body) {
  Sealed sealed;
  each(cursor, sealed.key_id, sealed.fence, sealed.nonce);
  const std::string_view bytes = cursor.bytes(kHeaderBytesMax + kBodyBytesMax);
  if (!cursor.ok() || bytes.size() < kSealTagBytes) return nullptr;
  if (body == DecodeBody::yes) sealed.bytes = bytes;
  return std::make_shared<const Sealed>(std::move(sealed));
}

template <Appendable Out>
void put_context(Out& out, const ClaimContext& context) {
  field(out, context.gateway);
  field(out, static_cast<std::uint32_t>(std::clamp<std::int64_t>(context.lease.count(), 0, UINT32_MAX)));
  field(out, static_cast<std::uint8_t>((context.trace ? kHasTrace : 0) | (context.account ? kHasAccount : 0)));
  if (context.trace) field(out, *context.trace);
  if (context.account) field(out, *context.account);
}

bool read_context(Cursor& cursor, ClaimContext& context) {
  std::uint32_t lease_ms = 0;
  std::uint8_t flags = 0;
  each(cursor, context.gateway, lease_ms, flags);
  context.lease = Millis(lease_ms);
  if ((flags & ~(kHasTrace | kHasAccount)) != 0) return false;
  if ((flags & kHasTrace) != 0) field(cursor, context.trace.emplace());
  if ((flags & kHasAccount) != 0) field(cursor, context.account.emplace());
  return cursor.ok();
}

bool read_response(Cursor& cursor, Flags flags, DecodeBody body, StoredResponse& response) {
  response.status = cursor.number<std::uint16_t>();
  field(cursor, response.reason);
  if ((flags & kHasOmitted) != 0) {
    OmittedBody& omitted = response.omitted.emplace();
    each(cursor, omitted.length, omitted.sha256.bytes);
    omitted.whole = (flags & kOmittedWhole) != 0;
  }
  if ((flags & kHasCourse) != 0) course_fields(cursor, response.course.emplace());
  if ((flags & kStreamBegun) != 0) response.stream = StreamMark::begun;
  if ((flags & kStreamWhole) != 0) response.stream = StreamMark::whole;
  if ((flags & kSealedResponse) != 0) {
    response.sealed = read_sealed(cursor, body);
    return response.sealed != nullptr;
  }
  const std::string_view lines = cursor.bytes(kHeaderBytesMax);
  const std::string_view content = cursor.bytes(kBodyBytesMax);
  if (!cursor.ok()) return false;
  if (body == DecodeBody::no) return true;
  std::optional<Headers> headers = Headers::from_lines(std::string(lines));
  if (!headers) return false;
  response.headers = *std::move(headers);
  response.body = content;
  return true;
}

// Everything between the format and the context.
template <class Place, class State, class AnyFlags, class AnyRecord>
void record_fields(Place& place, State& state, AnyFlags& flags, AnyRecord& record) {
  each(place, state, flags, record.fence, record.first_received, record.expires_at, record.lease_until,
       record.settled_at, record.fingerprint.bytes, record.route, record.key, record.method, record.target);
}

// Bits of a job's flags.
constexpr std::uint8_t kJobOrdered = 1;
constexpr std::uint8_t kJobMessageKept = 2;

// The one bit of a message's flags.
constexpr std::uint8_t kSealedMessage = 1;

// Everything between format and checksum.
template <class Place, class Job, class Byte, class Text>
void job_fields(Place& place, Byte& state, Byte& flags, Job& job, Text& tried) {
  each(place, state, flags, job.fence, job.attempts, job.staged_at, job.due_at, job.ended_at, job.expires_at,
       job.fingerprint.bytes, job.route, job.key, tried, job.why_dead);
}

} // namespace

std::size_t encoded_bytes_max(const Record& record) {
  return bytes_before_response(record) + kChecksumBytes + (record.response ? expected_size(*record.response) : 0);
}

RecordFront front_of(std::string_view record) {
  constexpr std::size_t kBefore = sizeof kRecordFormat + sizeof(std::uint8_t) + sizeof(Flags) + sizeof(std::uint64_t);
  Cursor cursor(record);
  cursor.take(kBefore);
  RecordFront front;
  field(cursor, front.first_received);
  constexpr std::size_t kBetween = 3 * sizeof(std::int64_t) + sizeof(Fingerprint::bytes);
  cursor.take(kBetween);
  cursor.take(cursor.number<std::uint16_t>()); // the route
  front.key = cursor.take(cursor.number<std::uint16_t>());
  return front;
}

void encode_record(const Record& record, std::string& out) {
  const std::size_t begin = out.size();
  out.reserve(begin + encoded_bytes_max(record));
  {
    Writer writer(out, bytes_before_response(record));
    field(writer, kRecordFormat);
    const auto state = static_cast<std::uint8_t>(record.state);
    const Flags flags = flags_of(record);
    record_fields(writer, state, flags, record);
    put_context(writer, record.context);
  }
  if (record.response) put_response(out, *record.response);
  put_checksum(out, begin);
}

Result<Record> decode_record(std::string_view bytes, DecodeBody body) {
  Result<Cursor> content = content_of(bytes, "record", kRecordFormat);
  if (!content) return std::move(content).fault();
  Cursor& cursor = *content;
  Record record;
  std::uint8_t state = 0;
  Flags flags = 0;
  record_fields(cursor, state, flags, record);
  const bool has_context = read_context(cursor, record.context);
  record.took_over = (flags & kTookOver) != 0;
  record.rerun = (flags & kRerun) != 0;
  bool well_formed = is_state(state) && (flags & ~kKnown) == 0;
  record.state = static_cast<RecordState>(state);
  if ((flags & kHasResponse) != 0)
    well_formed = read_response(cursor, flags, body, record.response.emplace()) && well_formed;
  if (!well_formed || !has_context || !cursor.ok() || !cursor.at_end()) return misshapen("record");
  return record;
}

void encode_context(const ClaimContext& context, std::string& out) { put_context(out, context); }

Result<ClaimContext> decode_context(std::string_view bytes) {
  Cursor cursor(bytes);
  ClaimContext context;
  if (!read_context(cursor, context) || !cursor.at_end()) return misshapen("record");
  return context;
}

void encode_response(const StoredResponse& response, std::string& out) {
  const std::size_t begin = out.size();
  out.reserve(begin + 16 + expected_size(response));
  field(out, kRecordFormat);
  field(out, flags_of(response));
  put_response(out, response);
  put_checksum(out, begin);
}

Result<StoredResponse> decode_response(std::string_view bytes, DecodeBody body) {
  Result<Cursor> content = content_of(bytes, "record", kRecordFormat);
  if (!content) return std::move(content).fault();
  const Flags flags = content->number<Flags>();
  const bool known = (flags & kHasResponse) != 0 && (flags & ~kOfResponse) == 0;
  StoredResponse response;
  if (!known || !read_response(*content, flags, body, response) || !content->at_end()) return misshapen("record");
  return response;
}

StoredResponse response_at_front(std::string_view bytes) {
  Cursor cursor(bytes);
  cursor.number<std::uint8_t>(); // the format
  cursor.number<Flags>();
  StoredResponse response;
  response.status = cursor.number<std::uint16_t>();
  field(cursor, response.reason);
  return response;
}

void encode_job(const StoredJob& job, std::string& out) {
  const std::size_t begin = out.size();
  const std::string tried = encode_attempts(job.tried);
  out.reserve(begin + 128 + job.route.size() + job.key.size() + tried.size() + job.why_dead.size());
  field(out, kJobFormat);
  const auto flags =
      static_cast<std::uint8_t>((job.ordered ? kJobOrdered : 0) | (job.message_kept ? kJobMessageKept : 0));
  const auto state = static_cast<std::uint8_t>(job.state);
  job_fields(out, state, flags, job, tried);
  put_checksum(out, begin);
}

Result<StoredJob> decode_job(const RecordId& id, std::string_view bytes) {
  Result<Cursor> content = content_of(bytes, "job", kJobFormat);
  if (!content) return std::move(content).fault();
  Cursor& cursor = *content;
  StoredJob job;
  job.id = id;
  std::uint8_t state = 0;
  std::uint8_t flags = 0;
  std::string tried;
  job_fields(cursor, state, flags, job, tried);
  job.state = static_cast<JobState>(state);
  job.ordered = (flags & kJobOrdered) != 0;
  job.message_kept = (flags & kJobMessageKept) != 0;
  std::optional<std::vector<Attempt>> attempts = decode_attempts(tried);
  const bool known = state >= static_cast<std::uint8_t>(JobState::waiting) &&
                     state <= static_cast<std::uint8_t>(JobState::dead) &&
                     (flags & ~(kJobOrdered | kJobMessageKept)) == 0;
  if (!known || !attempts || !cursor.ok() || !cursor.at_end()) return misshapen("job");
  job.tried = *std::move(attempts);
  return job;
}

void encode_message(const Message& message, std::string& out) {
  ONCEKEY_CHECK(message.headers.lines().size() <= kHeaderBytesMax, "stored headers are within their limit");
  ONCEKEY_CHECK(message.body.size() <= kBodyBytesMax, "a stored body is within its limit");
  const std::size_t begin = out.size();
  out.reserve(begin + 96 + message.target.size() + message.bytes());
  const std::uint8_t flags = message.sealed ? kSealedMessage : 0;
  each(out, kMessageFormat, flags, message.method, message.target);
  if (message.sealed) {
    put_sealed(out, *message.sealed);
  } else {
    put_bytes(out, message.headers.lines());
    put_bytes(out, message.body);
  }
  put_checksum(out, begin);
}

Result<Message> decode_message(std::string_view bytes) {
  Result<Cursor> content = content_of(bytes, "message", kMessageFormat);
  if (!content) return std::move(content).fault();
  Message message;
  std::uint8_t flags = 0;
  each(*content, flags, message.method, message.target);
  if ((flags & ~kSealedMessage) != 0) return misshapen("message");
  if ((flags & kSealedMessage) != 0) {
    message.sealed = read_sealed(*content, DecodeBody::yes);
    if (message.sealed == nullptr || !content->at_end()) return misshapen("message");
    return message;
  }
  const std::string_view lines = content->bytes(kHeaderBytesMax);
  const std::string_view body = content->bytes(kBodyBytesMax);
  if (!content->ok() || !content->at_end()) return misshapen("message");
  std::optional<Headers> headers = Headers::from_lines(std::string(lines));
  if (!headers) return misshapen("message");
  message.headers = *std::move(headers);
  message.body = body;
  return message;
}

} // namespace oncekey
