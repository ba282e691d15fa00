#include "config/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace oncekey {
namespace {

// The insertions, deletions, replacements and swaps of neighbours from one to the other (optimal string alignment).
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before_last, last, row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
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
