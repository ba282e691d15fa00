// multipart: multipart/form-data bodies (RFC 7578), in a form that does not depend on the boundary.
#pragma once

#include <oncekey/headers.h>

#include <string>
#include <string_view>

namespace oncekey {

// Appends to `out` each part in the order sent: its head (name, file name, type, as written) and its content, each with
// its length in front. Clients choose a new boundary for every try; equal parts are equal here whatever it is.
//
// False when the body can be read in more than one way: then nothing may be read into it. Strict on purpose. Exactly
// one Content-Type with one boundary; nothing before the first part or behind the last; lines of heads end in CRLF; and
// the boundary stands nowhere but between the parts, so that no content can be taken for the start of another part.
bool canonical_multipart(const Headers& headers, std::string_view body, std::string& out);

} // namespace oncekey
