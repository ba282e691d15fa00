#include "base/enum_name.h"
#include "core/store.h"

#include <oncekey/record.h>

namespace oncekey {

std::optional<RecordId> record_id_from_hex(std::string_view hex) {
  RecordId id;
  if (hex.size() != 2 * id.bytes.size()) return std::nullopt;
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    id.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return id;
}

std::string_view to_string(RecordState state) { return enum_name(state); }

std::string_view to_string(OperatorAction action) { return enum_name(action); }

std::string_view to_string(Durability level) { return enum_name(level); }

} // namespace oncekey
