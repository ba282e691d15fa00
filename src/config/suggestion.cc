#include "config/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace oncekey {
namespace {

// Levenshtein's distance: insertions, deletions and replacements from one to the other.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

} // namespace

std::string did_you_mean(std::string_view written, std::span<const std::string_view> known) {
  // A third of the letters wrong is still a typing error; more is another word. No setting is longer than 64.
  if (written.size() > 64) return "";
  std::size_t nearest = std::max<std::size_t>(1, written.size() / 3) + 1;
  std::string_view found;
  for (const std::string_view name : known) {
    const std::size_t far = distance(written, name);
    if (far < nearest) {
      nearest = far;
      found = name;
    }
  }
  return found.empty() ? "" : fmt::format("; did you mean \"{}\"?", found);
}

} // namespace oncekey
