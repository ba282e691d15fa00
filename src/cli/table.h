// table: rows of text in aligned columns, for people at a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// Every row has as many cells as the first, which holds the titles. The last column is not padded.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// Text that came from a client, made safe to print: control bytes could move a terminal's cursor and forge a line.
// Longer than `length_max` is cut, with dots at the end.
std::string printable(std::string_view text, std::size_t length_max);

} // namespace oncekey
