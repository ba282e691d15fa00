#include "phases/postgres_values.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

namespace oncekey::phases {
namespace {

// The types' numbers, which never change: SELECT oid, typname FROM pg_type.
constexpr Oid kBool = 16, kByteaType = 17, kInt8 = 20, kInt2 = 21, kInt4 = 23, kOid = 26, kFloat4 = 700, kFloat8 = 701,
              kNumeric = 1700;

std::string unescaped(const char* text) {
  std::size_t length = 0;
  unsigned char* const bytes = PQunescapeBytea(reinterpret_cast<const unsigned char*>(text), &length);
  std::string out(reinterpret_cast<const char*>(bytes), bytes ? length : 0);
  PQfreemem(bytes);
  return out;
}

SqlColumn postgres_column(const PGresult* result, int row, int column) {
  if (PQgetisnull(result, row, column)) return nullptr;
  const char* const text = PQgetvalue(result, row, column);
  const auto length = static_cast<std::size_t>(PQgetlength(result, row, column));
  switch (PQftype(result, column)) {
    case kInt2:
    case kInt4:
    case kInt8:
    case kOid: {
      std::int64_t number = 0;
      std::from_chars(text, text + length, number);
      return number;
    }
    case kNumeric: {
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(text, text + length, number);
      if (error == std::errc{} && end == text + length) return number;
      return std::string(text, length); // has a fraction, or more digits than an integer
    }
    case kBool:
      return std::int64_t{text[0] == 't'};
    case kFloat4:
    case kFloat8:
      return std::strtod(text, nullptr);
    case kByteaType:
      return unescaped(text);
    default:
      return std::string(text, length);
  }
}

} // namespace

PostgresValues::PostgresValues(std::span<const SqlValue> values) {
  pointers_.reserve(values.size());
  lengths_.reserve(values.size());
  types_.reserve(values.size());
  formats_.reserve(values.size());
  for (const SqlValue& value : values) {
    if (const auto* bytes = std::get_if<Bytes>(&value)) {
      push(bytes->bytes.data() ? bytes->bytes : std::string_view(""), kByteaType, 1);
    } else if (const auto* number = std::get_if<std::int64_t>(&value)) {
      push(texts_.emplace_back(fmt::format("{}", *number)), 0, 0);
    } else if (const auto* real = std::get_if<double>(&value)) {
      push(texts_.emplace_back(fmt::format("{}", *real)), 0, 0);
    } else if (const auto* text = std::get_if<std::string_view>(&value)) {
      push(texts_.emplace_back(*text), 0, 0);
    } else {
      push({}, 0, 0); // null
    }
  }
}

void PostgresValues::push(std::string_view value, Oid type, int format) {
  pointers_.push_back(value.data());
  lengths_.push_back(static_cast<int>(value.size()));
  types_.push_back(type);
  formats_.push_back(format);
}

SqlRows postgres_rows(PGresult* result, ColumnNames wanted) {
  SqlRows rows;
  const int count = PQntuples(result);
  const int width = PQnfields(result);
  std::shared_ptr<std::vector<std::string>> names;
  if (wanted == ColumnNames::wanted && count > 0) {
    names = std::make_shared<std::vector<std::string>>();
    for (int column = 0; column < width; ++column) names->emplace_back(PQfname(result, column));
  }
  rows.rows.reserve(static_cast<std::size_t>(count));
  for (int row = 0; row < count; ++row) {
    std::vector<SqlColumn> columns;
    columns.reserve(static_cast<std::size_t>(width));
    for (int column = 0; column < width; ++column) columns.push_back(postgres_column(result, row, column));
    rows.rows.emplace_back(std::move(columns), names);
  }
  const std::string_view tag = PQcmdStatus(result);
  if (!tag.starts_with("SELECT")) rows.changed = std::strtoll(PQcmdTuples(result), nullptr, 10);
  return rows;
}

} // namespace oncekey::phases
