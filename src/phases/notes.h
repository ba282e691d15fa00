// notes: an operation's notes as bytes, `name=value&name=value` with everything but letters, digits, `-`, `.` and `_`
// percent-encoded: exact for any bytes, and readable for a person who looks into the table.
#pragma once

#include <oncekey/operation.h>
#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey::phases {

std::string encode_notes(const Notes& notes);
Result<Notes> decode_notes(std::string_view bytes);

} // namespace oncekey::phases
