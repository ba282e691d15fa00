#include "store/postgres/values.h"

#include "base/utf8.h"
#include "core/record_codec.h"

#include <oncekey/check.h>

namespace oncekey::postgres {

ArrayParam::ArrayParam(TypeOids oids, std::size_t count) : type_(oids.array) {
  ONCEKEY_CHECK(count > 0, "an empty array is never sent");
  bytes_.reserve(20 + count * 12);
  add_number(1); // dimensions
  add_number(0); // flags; the server looks for nulls itself
  add_number(static_cast<std::int32_t>(oids.element));
  add_number(static_cast<std::int32_t>(count));
  add_number(1); // the first index
}

void ArrayParam::add_number(std::int32_t number) {
  const auto binary = binary_of(number);
  bytes_.append(binary.data(), binary.size());
}

Statement::Parameters::Parameters(const std::vector<std::string>& binary) : formats(binary.size(), 1) {
  values.reserve(binary.size());
  lengths.reserve(binary.size());
  for (const std::string& value : binary) {
    values.push_back(value.data());
    lengths.push_back(static_cast<int>(value.size()));
  }
}

bool Statement::send(PGconn* connection) const {
  const Parameters with(values_);
  return PQsendQueryParams(connection, sql_, static_cast<int>(values_.size()), types_.data(), with.values.data(),
                           with.lengths.data(), with.formats.data(), 1) == 1;
}

bool Statement::prepare(PGconn* connection, const std::string& name) const {
  return PQsendPrepare(connection, name.c_str(), sql_, static_cast<int>(types_.size()), types_.data()) == 1;
}

bool Statement::send_prepared(PGconn* connection, const std::string& name) const {
  const Parameters with(values_);
  return PQsendQueryPrepared(connection, name.c_str(), static_cast<int>(values_.size()), with.values.data(),
                             with.lengths.data(), with.formats.data(), 1) == 1;
}

std::vector<std::string_view> Row::array(int column) const {
  std::vector<std::string_view> elements;
  std::string_view rest = bytes(column);
  constexpr std::size_t kHeader = 20;
  if (rest.size() < kHeader || number_in<std::int32_t>(rest.substr(0, 4)) != 1) return elements;
  rest.remove_prefix(kHeader);
  while (rest.size() >= 4) {
    const std::int32_t length = number_in<std::int32_t>(rest.substr(0, 4));
    rest.remove_prefix(4);
    const std::size_t taken = length < 0 ? 0 : static_cast<std::size_t>(length);
    if (taken > rest.size()) break;
    elements.push_back(rest.substr(0, taken));
    rest.remove_prefix(taken);
  }
  return elements;
}

std::string as_text(std::string_view bytes, TextEncoding encoding) {
  bytes = bytes.substr(0, kTextBytesMax);
  const auto is_ascii = [](char c) { return c > 0 && static_cast<unsigned char>(c) < 0x80; };
  if (std::ranges::all_of(bytes, is_ascii)) return std::string(bytes); // nearly all are
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t length = bytes[0] == '\0' ? 0 : utf8_length(bytes);
    const bool fits = length == 1 || (length > 1 && encoding == TextEncoding::utf8);
    text.append(fits ? bytes.substr(0, length) : "?");
    bytes.remove_prefix(fits ? length : 1);
  }
  return text;
}

} // namespace oncekey::postgres
