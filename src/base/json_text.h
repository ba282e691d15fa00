// json_text: text as a JSON string.
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

// Appends `text` in quotes. Control characters are escaped; bytes outside ASCII, which may come from a client and need
// not be UTF-8, become U+FFFD one by one: the result is always valid JSON.
void append_json_string(std::string& out, std::string_view text);

} // namespace oncekey
