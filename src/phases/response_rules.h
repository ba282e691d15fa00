// response_rules: what a phase's response must not hold, because it goes on the wire and into the record as it is.
#pragma once

#include <oncekey/record.h>

#include <optional>
#include <string>

namespace oncekey::phases {

// Why this response cannot be kept, or nothing if it can.
std::optional<std::string> why_not_kept(const StoredResponse& response);

} // namespace oncekey::phases
