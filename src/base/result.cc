#include <oncekey/result.h>

namespace oncekey {

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::unavailable:
      return "unavailable";
    case FaultKind::timeout:
      return "timeout";
    case FaultKind::corrupt:
      return "corrupt";
    case FaultKind::newer_format:
      return "newer_format";
    case FaultKind::invalid:
      return "invalid";
    case FaultKind::conflict:
      return "conflict";
    case FaultKind::exhausted:
      return "exhausted";
  }
  return "unknown";
}

} // namespace oncekey
