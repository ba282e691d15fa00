#include "cli/table.h"

#include <oncekey/check.h>

#include <algorithm>

namespace oncekey {

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    ONCEKEY_CHECK(row.size() == widths.size(), "every row of a table has the cells of the first");
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      text += row[column];
      if (column + 1 < row.size()) text.append(widths[column] - row[column].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string printable(std::string_view text, std::size_t length_max) {
  std::string safe(text.size() > length_max ? text.substr(0, length_max) : text);
  for (char& c : safe) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte >= 0x7f) c = '?';
  }
  if (text.size() > length_max && length_max > 3) safe.replace(length_max - 3, 3, "...");
  return safe;
}

} // namespace oncekey
