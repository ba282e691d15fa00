// values: parameters and results in libpq's binary format.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::postgres {

// Numbers of the server's built-in types, fixed for ever.
inline constexpr Oid kBoolOid = 16;
inline constexpr Oid kByteaOid = 17;
inline constexpr Oid kInt8Oid = 20;
inline constexpr Oid kInt2Oid = 21;
inline constexpr Oid kInt4Oid = 23;
inline constexpr Oid kTextOid = 25;

// A one-dimensional array as it is built up, element by element; how many there will be is said first.
class ArrayParam {
 public:
  ArrayParam(Oid element, std::size_t count);
  void add_int8(std::int64_t value);
  void add_int4(std::int32_t value);
  void add_int2(std::int16_t value);
  void add_bool(bool value);
  void add_bytes(std::string_view value);
  void add_null();

  Oid type() const;
  std::string take() && { return std::move(bytes_); }

 private:
  Oid element_;
  std::string bytes_;
};

// The parameters of one statement.
class Params {
 public:
  Params& int8(std::int64_t value);
  Params& int4(std::int32_t value);
  Params& int2(std::int16_t value);
  Params& boolean(bool value);
  Params& text(std::string_view value);
  Params& bytes(std::string_view value);
  Params& array(ArrayParam array);

  // Hands the parameters to libpq; false if it could not take them.
  bool send(PGconn* connection, const char* sql) const;

 private:
  Params& add(Oid type, std::string value);

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
  std::int64_t int8(int column) const;
  std::int32_t int4(int column) const;
  std::int16_t int2(int column) const;
  bool boolean(int column) const;
  std::string_view bytes(int column) const;
  // Of a one-dimensional array without nulls: its elements' bytes.
  std::vector<std::string_view> array(int column) const;

 private:
  const PGresult* result_;
  int row_;
};

// The number in an element of Row::array.
std::int16_t int2_of(std::string_view bytes);
bool bool_of(std::string_view bytes);

// What a text column takes: valid UTF-8 without NUL, or plain ASCII where the server's encoding is another. What does
// not fit becomes '?': texts are for people, and a claim must not fail for them.
enum class TextEncoding { utf8, ascii };
std::string as_text(std::string_view bytes, TextEncoding encoding);

} // namespace oncekey::postgres
