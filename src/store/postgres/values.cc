#include "store/postgres/values.h"

#include "core/record_codec.h"

#include <oncekey/check.h>

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

namespace oncekey::postgres {
namespace {

template <class Number>
Number swapped(Number value) {
  static_assert(std::endian::native == std::endian::little);
  std::make_unsigned_t<Number> bits = static_cast<std::make_unsigned_t<Number>>(value);
  if constexpr (sizeof bits == 8) bits = __builtin_bswap64(bits);
  if constexpr (sizeof bits == 4) bits = __builtin_bswap32(bits);
  if constexpr (sizeof bits == 2) bits = __builtin_bswap16(bits);
  return static_cast<Number>(bits);
}

template <class Number>
void append_network(std::string& out, Number value) {
  const Number network = swapped(value);
  char bytes[sizeof network];
  std::memcpy(bytes, &network, sizeof network);
  out.append(bytes, sizeof network);
}

template <class Number>
std::string network_bytes(Number value) {
  std::string out;
  append_network(out, value);
  return out;
}

template <class Number>
Number read_network(std::string_view bytes) {
  Number value{};
  if (bytes.size() != sizeof value) return value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return swapped(value);
}

Oid array_type(Oid element) {
  switch (element) {
    case kBoolOid:
      return 1000;
    case kByteaOid:
      return 1001;
    case kInt2Oid:
      return 1005;
    case kInt4Oid:
      return 1007;
    case kTextOid:
      return 1009;
    case kInt8Oid:
      return 1016;
  }
  ONCEKEY_CHECK(false, "only arrays of known types are sent");
  return 0;
}

// How many bytes the character at the front of `text` has; 0 if it is none that UTF-8 allows.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const auto continues = [&](std::size_t from, std::size_t to) {
    if (text.size() <= to) return false;
    for (std::size_t at = from; at <= to; ++at) {
      if ((byte(at) & 0xC0) != 0x80) return false;
    }
    return true;
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1, 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(1, 2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0; // could be said shorter
    if (first == 0xED && byte(1) > 0x9F) return 0; // half of a surrogate pair
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(1, 3)) return 0;
    if (first == 0xF0 && byte(1) < 0x90) return 0;
    if (first == 0xF4 && byte(1) > 0x8F) return 0; // beyond Unicode
    return 4;
  }
  return 0;
}

} // namespace

ArrayParam::ArrayParam(Oid element, std::size_t count) : element_(element) {
  ONCEKEY_CHECK(count > 0, "an empty array is never sent");
  bytes_.reserve(20 + count * 12);
  append_network<std::int32_t>(bytes_, 1); // dimensions
  append_network<std::int32_t>(bytes_, 0); // flags; the server looks for nulls itself
  append_network<std::int32_t>(bytes_, static_cast<std::int32_t>(element));
  append_network<std::int32_t>(bytes_, static_cast<std::int32_t>(count));
  append_network<std::int32_t>(bytes_, 1); // the first index
}

void ArrayParam::add_int8(std::int64_t value) {
  append_network<std::int32_t>(bytes_, 8);
  append_network(bytes_, value);
}
void ArrayParam::add_int4(std::int32_t value) {
  append_network<std::int32_t>(bytes_, 4);
  append_network(bytes_, value);
}
void ArrayParam::add_int2(std::int16_t value) {
  append_network<std::int32_t>(bytes_, 2);
  append_network(bytes_, value);
}
void ArrayParam::add_bool(bool value) {
  append_network<std::int32_t>(bytes_, 1);
  bytes_.push_back(value ? 1 : 0);
}
void ArrayParam::add_bytes(std::string_view value) {
  append_network<std::int32_t>(bytes_, static_cast<std::int32_t>(value.size()));
  bytes_.append(value);
}
void ArrayParam::add_null() { append_network<std::int32_t>(bytes_, -1); }
Oid ArrayParam::type() const { return array_type(element_); }

Params& Params::add(Oid type, std::string value) {
  types_.push_back(type);
  values_.push_back(std::move(value));
  return *this;
}
Params& Params::int8(std::int64_t value) { return add(kInt8Oid, network_bytes(value)); }
Params& Params::int4(std::int32_t value) { return add(kInt4Oid, network_bytes(value)); }
Params& Params::int2(std::int16_t value) { return add(kInt2Oid, network_bytes(value)); }
Params& Params::boolean(bool value) { return add(kBoolOid, std::string(1, value ? '\1' : '\0')); }
Params& Params::text(std::string_view value) { return add(kTextOid, std::string(value)); }
Params& Params::bytes(std::string_view value) { return add(kByteaOid, std::string(value)); }
Params& Params::array(ArrayParam array) {
  const Oid type = array.type();
  return add(type, std::move(array).take());
}

bool Params::send(PGconn* connection, const char* sql) const {
  std::vector<const char*> values;
  std::vector<int> lengths;
  const std::vector<int> formats(values_.size(), 1);
  for (const std::string& value : values_) {
    values.push_back(value.data());
    lengths.push_back(static_cast<int>(value.size()));
  }
  return PQsendQueryParams(connection, sql, static_cast<int>(values_.size()), types_.data(), values.data(),
                           lengths.data(), formats.data(), 1) == 1;
}

std::string_view Row::bytes(int column) const {
  return {PQgetvalue(result_, row_, column), static_cast<std::size_t>(PQgetlength(result_, row_, column))};
}
std::int64_t Row::int8(int column) const { return read_network<std::int64_t>(bytes(column)); }
std::int32_t Row::int4(int column) const { return read_network<std::int32_t>(bytes(column)); }
std::int16_t Row::int2(int column) const { return read_network<std::int16_t>(bytes(column)); }
bool Row::boolean(int column) const { return bool_of(bytes(column)); }

std::vector<std::string_view> Row::array(int column) const {
  std::vector<std::string_view> elements;
  std::string_view rest = bytes(column);
  constexpr std::size_t kHeader = 20;
  if (rest.size() < kHeader || read_network<std::int32_t>(rest.substr(0, 4)) != 1) return elements;
  rest.remove_prefix(kHeader);
  while (rest.size() >= 4) {
    const std::int32_t length = read_network<std::int32_t>(rest.substr(0, 4));
    rest.remove_prefix(4);
    const std::size_t taken = length < 0 ? 0 : static_cast<std::size_t>(length);
    if (taken > rest.size()) break;
    elements.push_back(rest.substr(0, taken));
    rest.remove_prefix(taken);
  }
  return elements;
}

std::int16_t int2_of(std::string_view bytes) { return read_network<std::int16_t>(bytes); }
bool bool_of(std::string_view bytes) { return bytes.size() == 1 && bytes[0] != 0; }

std::string as_text(std::string_view bytes, TextEncoding encoding) {
  bytes = bytes.substr(0, kTextBytesMax);
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    std::size_t length = bytes[0] == '\0' ? 0 : utf8_length(bytes);
    if (encoding == TextEncoding::ascii && length > 1) length = 0;
    if (length == 0) {
      text.push_back('?');
      bytes.remove_prefix(1);
      continue;
    }
    text.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return text;
}

} // namespace oncekey::postgres
