// values: statements with their parameters, and results, in libpq's binary format.
#pragma once

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <libpq-fe.h>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace oncekey::postgres {

// Bytes that are not text: a std::string, or a std::string_view of what outlives the parameter's making.
template <class Text>
struct Bytea {
  Text bytes;
};

// The numbers of a built-in type of the server's and of its array, fixed for ever.
struct TypeOids {
  Oid element;
  Oid array;
};
template <class T>
constexpr TypeOids oids_of() {
  if constexpr (requires(const T& value) { value.has_value(); }) return oids_of<typename T::value_type>();
  if constexpr (std::same_as<T, bool>) return {16, 1000};
  if constexpr (requires(const T& value) { value.bytes; }) return {17, 1001};
  if constexpr (std::same_as<T, std::int64_t>) return {20, 1016};
  if constexpr (std::same_as<T, std::int16_t>) return {21, 1005};
  if constexpr (std::same_as<T, std::int32_t>) return {23, 1007};
  if constexpr (std::convertible_to<T, std::string_view>) return {25, 1009};
}

// In the binary format a number has its most significant byte first; text and bytes are as they are.
template <std::integral Number>
std::array<char, sizeof(Number)> binary_of(Number value) {
  static_assert(std::endian::native == std::endian::little);
  auto bytes = std::bit_cast<std::array<char, sizeof(Number)>>(value);
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}
inline std::string_view binary_of(std::string_view text) { return text; }
template <class Text>
std::string_view binary_of(const Bytea<Text>& value) {
  return value.bytes;
}

template <std::integral Number>
Number number_in(std::string_view binary) {
  std::array<char, sizeof(Number)> bytes;
  if (binary.size() != bytes.size()) return Number{};
  std::reverse_copy(binary.begin(), binary.end(), bytes.begin());
  return std::bit_cast<Number>(bytes);
}
inline bool bool_in(std::string_view binary) { return binary.size() == 1 && binary[0] != 0; }

// A one-dimensional array.
class ArrayParam {
 public:
  // What `value` returns for each of the items, of which there is at least one; null for an empty optional.
  template <class Items, class Value>
  ArrayParam(const Items& items, Value value)
      : ArrayParam(oids_of<std::invoke_result_t<Value, decltype(*items.begin())>>(), items.size()) {
    for (const auto& item : items) add(value(item));
  }

  Oid type() const { return type_; }
  std::string take() && { return std::move(bytes_); }

 private:
  ArrayParam(TypeOids oids, std::size_t count);
  template <class T>
  void add(const T& value) {
    const auto binary = binary_of(value);
    add_number(static_cast<std::int32_t>(binary.size()));
    bytes_.append(binary.data(), binary.size());
  }
  template <class T>
  void add(const std::optional<T>& value) {
    value ? add(*value) : add_number(-1);
  }
  void add_number(std::int32_t number);

  Oid type_;
  std::string bytes_;
};

// One statement and its parameters, each of the type that its C++ type stands for.
class Statement {
 public:
  // The text outlives it.
  template <class... Values>
  explicit Statement(const char* sql, Values&&... values) : sql_(sql) {
    (add(std::forward<Values>(values)), ...);
  }

  const char* text() const { return sql_; }

  // Each hands something to libpq, and is false if that could not take it: the statement as it is; its text, to be kept
  // in the session under this name; its parameters, for the text of this name.
  bool send(PGconn* connection) const;
  bool prepare(PGconn* connection, const std::string& name) const;
  bool send_prepared(PGconn* connection, const std::string& name) const;

 private:
  // As libpq wants them.
  struct Parameters {
    explicit Parameters(const std::vector<std::string>& binary);
    std::vector<const char*> values;
    std::vector<int> lengths;
    std::vector<int> formats;
  };
  template <class T>
  void add(const T& value) {
    const auto binary = binary_of(value);
    types_.push_back(oids_of<T>().element);
    values_.emplace_back(binary.data(), binary.size());
  }
  void add(ArrayParam&& array) {
    types_.push_back(array.type());
    values_.push_back(std::move(array).take());
  }

  const char* sql_;
  std::vector<Oid> types_;
  std::vector<std::string> values_;
};

struct ResultFree {
  void operator()(PGresult* result) const { PQclear(result); }
};
using ResultPtr = std::unique_ptr<PGresult, ResultFree>;

// One row of a binary result. What the server sent is the server's promise: a value shorter than its type reads as
// zero.
class Row {
 public:
  Row(const PGresult* result, int row) : result_(result), row_(row) {}
  bool is_null(int column) const { return PQgetisnull(result_, row_, column) != 0; }
  std::string_view bytes(int column) const {
    return {PQgetvalue(result_, row_, column), static_cast<std::size_t>(PQgetlength(result_, row_, column))};
  }
  std::int64_t int8(int column) const { return number_in<std::int64_t>(bytes(column)); }
  std::uint64_t count(int column) const { return number_in<std::uint64_t>(bytes(column)); }
  std::int32_t int4(int column) const { return number_in<std::int32_t>(bytes(column)); }
  std::int16_t int2(int column) const { return number_in<std::int16_t>(bytes(column)); }
  bool boolean(int column) const { return bool_in(bytes(column)); }
  Time time(int column) const { return Time{Millis{int8(column)}}; }
  std::string text(int column) const { return std::string(bytes(column)); }
  // Of a one-dimensional array: its elements' bytes, none for a null.
  std::vector<std::string_view> array(int column) const;

 private:
  const PGresult* result_;
  int row_;
};

inline auto rows_of(const PGresult* result) {
  return std::views::iota(0, PQntuples(result)) | std::views::transform([result](int row) { return Row(result, row); });
}

inline std::string_view view_of(const auto& bytes) {
  return {static_cast<const char*>(static_cast<const void*>(bytes.data())), bytes.size()};
}
template <class Tag>
Bytea<std::string_view> bytea_of(const Digest<Tag>& digest) {
  return {view_of(digest.bytes)};
}
bool copy_exactly(std::string_view from, auto& to) {
  if (from.size() != to.size()) return false;
  std::copy(from.begin(), from.end(), to.begin());
  return true;
}

// What a text column takes: valid UTF-8 without NUL, or plain ASCII where the server's encoding is another. What does
// not fit becomes '?': texts are for people, and a claim must not fail for them.
enum class TextEncoding { utf8, ascii };
std::string as_text(std::string_view bytes, TextEncoding encoding);

} // namespace oncekey::postgres
