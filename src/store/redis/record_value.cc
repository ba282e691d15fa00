#include "store/redis/record_value.h"

#include "core/record_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace oncekey::redis {
namespace {

constexpr std::uint8_t kTookOver = 1;
constexpr std::uint8_t kRerun = 2;

// Reads from the front. Asking for more than there is gives zeros and is remembered.
class ValueCursor {
 public:
  explicit ValueCursor(std::string_view bytes) : rest_(bytes) {}
  bool ran_out() const { return ran_out_; }
  std::string_view rest() const { return rest_; }

  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) {
      ran_out_ = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::string_view taken = take(bytes);
    for (std::size_t i = taken.size(); i > 0; --i) value = value << 8 | static_cast<std::uint8_t>(taken[i - 1]);
    return value;
  }
  Time time() { return Time{Millis{static_cast<std::int64_t>(number(8))}}; }
  template <class Bytes>
  void fill(Bytes& out) {
    const std::string_view taken = take(out.size());
    if (!taken.empty()) std::memcpy(out.data(), taken.data(), out.size());
  }
  std::string text() { return std::string(take(number(2))); }

 private:
  std::string_view rest_;
  bool ran_out_ = false;
};

void append_number(std::string& out, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> 8 * i & 0xff));
}

void append_text(std::string& out, std::string_view text) {
  text = text.substr(0, kTextBytesMax);
  append_number(out, text.size(), 2);
  out.append(text);
}

// What a listing shows when the response itself is too long to fetch for it.
StoredResponse status_only(int status) {
  StoredResponse response;
  response.status = status;
  return response;
}

} // namespace

Result<Record> decode_value(std::string_view value, ReadResponse response) {
  ValueCursor cursor(value);
  const std::uint64_t format = cursor.number(1);
  if (format > kValueFormat) {
    return Fault{FaultKind::newer_format,
                 fmt::format("a record in Redis is of format {}, and this version of oncekey knows formats up to {}: "
                             "run the newer version everywhere",
                             format, kValueFormat)};
  }
  Record record;
  const std::uint64_t state = cursor.number(1);
  const std::uint64_t flags = cursor.number(1);
  record.fence = cursor.number(8);
  record.first_received = cursor.time();
  record.expires_at = cursor.time();
  record.lease_until = cursor.time();
  record.settled_at = cursor.time();
  const auto status = static_cast<int>(cursor.number(2));
  cursor.fill(record.fingerprint.bytes);
  cursor.fill(record.claimed_by);
  cursor.number(4); // the texts tell their own lengths
  record.route = cursor.text();
  record.key = cursor.text();
  record.method = cursor.text();
  record.target = cursor.text();
  Result<ClaimContext> context = decode_context(cursor.text());
  if (cursor.ran_out() || !context || format == 0 || state < 1 || state > 3) {
    return corrupt("a record in Redis is not one that oncekey has written; look at what else uses this server");
  }
  record.context = *std::move(context);
  record.state = static_cast<RecordState>(state);
  record.took_over = (flags & kTookOver) != 0;
  record.rerun = (flags & kRerun) != 0;
  if (record.state != RecordState::completed) return record;
  const DecodeBody body = response == ReadResponse::whole ? DecodeBody::yes : DecodeBody::no;
  Result<StoredResponse> stored = decode_response(cursor.rest(), body);
  if (stored) {
    record.response = *std::move(stored);
  } else if (response == ReadResponse::summary) {
    record.response = status_only(status);
  } else {
    return std::move(stored).fault();
  }
  return record;
}

std::string encode_identity(const ClaimRequest& request) {
  std::string texts;
  append_text(texts, request.route);
  append_text(texts, request.key);
  append_text(texts, request.method);
  append_text(texts, request.target);
  std::string context;
  encode_context(request.context, context);
  append_text(texts, context);
  std::string out;
  out.reserve(request.fingerprint.bytes.size() + request.token.size() + 4 + texts.size());
  out.append(request.fingerprint.bytes.begin(), request.fingerprint.bytes.end());
  out.append(request.token.begin(), request.token.end());
  append_number(out, texts.size(), 4);
  out.append(texts);
  return out;
}

std::string encode_times(const ClaimRequest& request) {
  std::string out;
  for (const Millis time : {request.retention, request.lease}) {
    append_number(out, static_cast<std::uint64_t>(std::max<std::int64_t>(0, time.count())), 8);
  }
  return out;
}

std::string encode_fence(std::uint64_t fence) {
  std::string out;
  append_number(out, fence, 8);
  return out;
}

std::string encode_status(int status) {
  std::string out;
  append_number(out, static_cast<std::uint64_t>(status), 2);
  return out;
}

} // namespace oncekey::redis
