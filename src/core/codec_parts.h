// codec_parts: what the codecs of records and jobs are made of. Numbers are little-endian; docs/RECORD_FORMAT.md.
#pragma once

#include <oncekey/check.h>
#include <oncekey/record.h>
#include <oncekey/result.h>
#include <oncekey/time.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace oncekey {

// Texts longer than this are cut when stored: they are shown, never compared, and a length of two bytes is enough for
// anything a strict header limit lets through.
inline constexpr std::size_t kTextBytesMax = 65535;
// More than any limit on stored headers or bodies may be set to; a longer length on disk is damage, not data.
inline constexpr std::size_t kHeaderBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kBodyBytesMax = std::size_t{1} << 30;

namespace codec {

// Appends many small fields to a string that is made long enough once: a string asks for its room at every append.
class Writer {
 public:
  Writer(std::string& out, std::size_t bytes_max) : out_(out), at_(out.size()) { out_.resize(at_ + bytes_max); }
  ~Writer() { out_.resize(at_); }
  Writer& operator=(Writer&&) = delete;

  void append(const char* bytes, std::size_t count) {
    ONCEKEY_CHECK(count <= out_.size() - at_, "what is encoded has no more bytes than was said");
    std::memcpy(out_.data() + at_, bytes, count);
    at_ += count;
  }
  void append(std::string_view bytes) { append(bytes.data(), bytes.size()); }
  std::size_t size() const { return at_; }

 private:
  std::string& out_;
  std::size_t at_;
};

template <class Out>
concept Appendable = std::same_as<Out, std::string> || std::same_as<Out, Writer>;

// field() writes to a string or a Writer, or reads from a Cursor; each() does so for several. So one list of fields
// serves both ways.
template <Appendable Out, std::integral Number>
void field(Out& out, Number value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
template <Appendable Out>
void field(Out& out, Time time) {
  field(out, static_cast<std::int64_t>(time.time_since_epoch().count()));
}
template <Appendable Out, std::size_t kBytes>
void field(Out& out, const std::array<std::uint8_t, kBytes>& array) {
  char bytes[kBytes];
  std::memcpy(bytes, array.data(), kBytes);
  out.append(bytes, kBytes);
}
template <Appendable Out>
void field(Out& out, std::string_view text) {
  text = text.substr(0, kTextBytesMax);
  field(out, static_cast<std::uint16_t>(text.size()));
  out.append(text);
}

template <Appendable Out>
void put_bytes(Out& out, std::string_view bytes) {
  field(out, static_cast<std::uint32_t>(bytes.size()));
  out.append(bytes);
}

// Of everything from `begin` on. The last step of an encoding.
void put_checksum(std::string& out, std::size_t begin);

// Reads from the front of a view. After the first read past the end everything reads as zero and ok() is false, so
// that a parse is one straight run with one question at the end.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}

  template <class Number>
  Number number() {
    Number value{};
    const std::string_view bytes = take(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view bytes(std::size_t length_max) {
    const std::uint32_t length = number<std::uint32_t>();
    if (length > length_max) ok_ = false;
    return take(length);
  }

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

  // Empty past the end.
  std::string_view take(std::size_t length) {
    if (!ok_ || length > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view front = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return front;
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

template <std::integral Number>
void field(Cursor& cursor, Number& value) {
  value = cursor.number<Number>();
}
inline void field(Cursor& cursor, Time& time) { time = Time{Millis{cursor.number<std::int64_t>()}}; }
template <std::size_t kBytes>
void field(Cursor& cursor, std::array<std::uint8_t, kBytes>& out) {
  const std::string_view bytes = cursor.take(kBytes);
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), kBytes);
}
inline void field(Cursor& cursor, std::string& text) { text = cursor.take(cursor.number<std::uint16_t>()); }

template <class Place, class... Fields>
void each(Place& place, Fields&... fields) {
  (field(place, fields), ...);
}

// What stands between the format byte and the checksum, once both are as they should be. `what` is "record", "job" or
// "message", for the fault.
Result<Cursor> content_of(std::string_view bytes, std::string_view what, std::uint8_t newest_format);
// The bytes do not have the shape of such a thing.
Fault misshapen(std::string_view what);

} // namespace codec
} // namespace oncekey
