#include "base/enum_name.h"
#include "base/url.h"
#include "core/job_store.h"

namespace oncekey {

std::optional<RecordId> record_id_from_hex(std::string_view hex) {
  RecordId id;
  if (hex.size() != 2 * id.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    id.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return id;
}

std::string_view to_string(RecordState state) { return enum_name(state); }

std::string_view to_string(OperatorAction action) { return enum_name(action); }

std::string_view to_string(Durability level) { return enum_name(level); }

std::string_view to_string(JobState state) { return enum_name(state); }

std::string_view to_string(JobAction action) { return enum_name(action); }

} // namespace oncekey
