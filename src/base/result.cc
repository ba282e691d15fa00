#include "base/enum_name.h"

#include <oncekey/result.h>

namespace oncekey {

std::string_view to_string(FaultKind kind) { return enum_name(kind); }

} // namespace oncekey
