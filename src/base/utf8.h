// utf8: any bytes as UTF-8, for readers that accept nothing else (JSON, terminals).
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

bool is_utf8(std::string_view text);

// `text` with U+FFFD in place of every byte that is not part of a UTF-8 sequence.
std::string as_utf8(std::string_view text);

} // namespace oncekey
