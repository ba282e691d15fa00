// plain_head: heads of the usual form, parsed in one pass.
//
// Nearly every head is a first line and lines of "Name: value" in printable ASCII, without Transfer-Encoding and with
// at most one Content-Length. Beast and the checks around it walk over such a head five times to find nothing wrong
// with it. These functions take heads of that form and leave all others to them: they refuse nothing, and what they
// take means the same there (parser_test compares the two byte by byte).
#pragma once

#include "http/message.h"

namespace oncekey {

// False for any other form; `out` is then not to be used. `head` is exactly head_length() bytes.
bool parse_plain_head(std::string_view head, RequestHead& out);
// The same for final responses that have a body by their status, and say its length.
bool parse_plain_head(std::string_view head, ResponseHead& out);

} // namespace oncekey
