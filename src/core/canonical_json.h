// canonical_json: the same bytes for all spellings of one JSON value.
//
// Members are sorted by their decoded name; members of the same name keep their order, since which of them counts is
// the reader's choice. White space and the way a character is escaped do not matter. A number keeps its spelling: 1,
// 1.0 and 1e0 differ, because reading them as doubles would make different big numbers alike, and refusing a retry is
// safe where replaying the wrong answer is not.
//
// The form is for hashing, not for reading: `"3:abc` for a string, `#1.5;` for a number, t f z for the literals.
#pragma once

#include <oncekey/headers.h>

#include <span>
#include <string>
#include <string_view>

namespace oncekey {

// Replaces `out` with the canonical form of `json`, without what stands at the pointers in `ignore`. False when the
// text is not JSON or beyond the limits of json_scan.h; `out` is then empty.
bool canonical_json(std::string_view json, std::span<const std::string> ignore, std::string& out);

// The same for application/x-www-form-urlencoded: decoded pairs sorted by name, pairs of one name in their order. False
// when an escape is not a percent sign and two hex digits.
bool canonical_form(std::string_view form, std::string& out);

// The same for multipart/form-data (RFC 7578). Appends to `out` each part in the order sent: its head (name, file name,
// type, as written) and its content, each with its length in front. Clients choose a new boundary for every try; equal
// parts are equal here whatever it is.
//
// False when the body can be read in more than one way: then nothing may be read into it. Strict on purpose. Exactly
// one Content-Type with one boundary; nothing before the first part or behind the last; lines of heads end in CRLF; and
// the boundary stands nowhere but between the parts, so that no content can be taken for the start of another part.
bool canonical_multipart(const Headers& headers, std::string_view body, std::string& out);

} // namespace oncekey
