#include "core/record_codec.h"

#include <utility>

namespace oncekey {
namespace {

using namespace codec;

// Bits of the flags byte.
constexpr std::uint8_t kTookOver = 1;
constexpr std::uint8_t kRerun = 2;
constexpr std::uint8_t kHasResponse = 4;
constexpr std::uint8_t kHasOmitted = 8;
constexpr std::uint8_t kOmittedWhole = 16;

std::uint8_t flags_of(const StoredResponse& response) {
  std::uint8_t flags = kHasResponse;
  if (response.omitted) {
    flags |= kHasOmitted;
    if (response.omitted->whole) flags |= kOmittedWhole;
  }
  return flags;
}

std::uint8_t flags_of(const Record& record) {
  std::uint8_t flags = 0;
  if (record.took_over) flags |= kTookOver;
  if (record.rerun) flags |= kRerun;
  if (record.response) flags |= flags_of(*record.response);
  return flags;
}

std::size_t expected_size(const StoredResponse& response) {
  ONCEKEY_CHECK(response.headers.lines().size() <= kHeaderBytesMax, "stored headers are within their limit");
  ONCEKEY_CHECK(response.body.size() <= kBodyBytesMax, "a stored body is within its limit");
  return 64 + response.reason.size() + response.headers.lines().size() + response.body.size();
}

void put_response(std::string& out, const StoredResponse& response) {
  put<std::uint16_t>(out, static_cast<std::uint16_t>(response.status));
  put_text(out, response.reason);
  if (response.omitted) {
    put<std::uint64_t>(out, response.omitted->length);
    put_digest(out, response.omitted->sha256);
  }
  put_bytes(out, response.headers.lines());
  put_bytes(out, response.body);
}

bool is_state(std::uint8_t value) {
  return value >= static_cast<std::uint8_t>(RecordState::in_progress) &&
         value <= static_cast<std::uint8_t>(RecordState::indeterminate);
}

bool read_response(Cursor& cursor, std::uint8_t flags, DecodeBody body, StoredResponse& response) {
  response.status = cursor.number<std::uint16_t>();
  response.reason = cursor.text();
  if ((flags & kHasOmitted) != 0) {
    OmittedBody& omitted = response.omitted.emplace();
    omitted.length = cursor.number<std::uint64_t>();
    omitted.sha256 = cursor.digest<BodyHashTag>();
    omitted.whole = (flags & kOmittedWhole) != 0;
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

} // namespace

void encode_record(const Record& record, std::string& out) {
  const std::size_t begin = out.size();
  std::size_t expected = 128 + record.route.size() + record.key.size() + record.method.size() + record.target.size();
  if (record.response) expected += expected_size(*record.response);
  out.reserve(begin + expected);

  put<std::uint8_t>(out, kRecordFormat);
  put<std::uint8_t>(out, static_cast<std::uint8_t>(record.state));
  put<std::uint8_t>(out, flags_of(record));
  put<std::uint64_t>(out, record.fence);
  put_time(out, record.first_received);
  put_time(out, record.expires_at);
  put_time(out, record.lease_until);
  put_time(out, record.settled_at);
  put_digest(out, record.fingerprint);
  put_text(out, record.route);
  put_text(out, record.key);
  put_text(out, record.method);
  put_text(out, record.target);
  if (record.response) put_response(out, *record.response);
  put_checksum(out, begin);
}

Result<Record> decode_record(std::string_view bytes, DecodeBody body) {
  Result<Cursor> content = content_of(bytes, "record", kRecordFormat);
  if (!content) return std::move(content).fault();
  Cursor& cursor = *content;
  Record record;
  const std::uint8_t state = cursor.number<std::uint8_t>();
  const std::uint8_t flags = cursor.number<std::uint8_t>();
  record.fence = cursor.number<std::uint64_t>();
  record.first_received = cursor.time();
  record.expires_at = cursor.time();
  record.lease_until = cursor.time();
  record.settled_at = cursor.time();
  record.fingerprint = cursor.digest<FingerprintTag>();
  record.route = cursor.text();
  record.key = cursor.text();
  record.method = cursor.text();
  record.target = cursor.text();
  record.took_over = (flags & kTookOver) != 0;
  record.rerun = (flags & kRerun) != 0;
  bool well_formed = is_state(state);
  record.state = static_cast<RecordState>(state);
  if ((flags & kHasResponse) != 0) {
    well_formed = read_response(cursor, flags, body, record.response.emplace()) && well_formed;
  }
  if (!well_formed || !cursor.ok() || !cursor.at_end()) return misshapen("record");
  return record;
}

void encode_response(const StoredResponse& response, std::string& out) {
  const std::size_t begin = out.size();
  out.reserve(begin + 16 + expected_size(response));
  put<std::uint8_t>(out, kRecordFormat);
  put<std::uint8_t>(out, flags_of(response));
  put_response(out, response);
  put_checksum(out, begin);
}

Result<StoredResponse> decode_response(std::string_view bytes, DecodeBody body) {
  Result<Cursor> content = content_of(bytes, "record", kRecordFormat);
  if (!content) return std::move(content).fault();
  const std::uint8_t flags = content->number<std::uint8_t>();
  const bool known = (flags & kHasResponse) != 0 && (flags & ~(kHasResponse | kHasOmitted | kOmittedWhole)) == 0;
  StoredResponse response;
  if (!known || !read_response(*content, flags, body, response) || !content->at_end()) return misshapen("record");
  return response;
}

StoredResponse response_at_front(std::string_view bytes) {
  Cursor cursor(bytes);
  cursor.number<std::uint8_t>(); // the format
  cursor.number<std::uint8_t>(); // the flags
  StoredResponse response;
  response.status = cursor.number<std::uint16_t>();
  response.reason = cursor.text();
  return response;
}

} // namespace oncekey
