// json_text: text as a JSON string, and problem documents made of it.
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

// Appends `text` in quotes. Control characters are escaped. Bytes that are not UTF-8, which may come from a client,
// become U+FFFD one by one: the result is always valid JSON.
void append_json_string(std::string& out, std::string_view text);

// The body of application/problem+json (RFC 9457).
std::string problem_json(std::string_view type, std::string_view title, int status, std::string_view detail);

} // namespace oncekey
