#include "config/routes.h"

#include <algorithm>
#include <string>

namespace oncekey {
namespace {

bool has_method(const Route& route, std::string_view method) {
  const auto& methods = route.policy.methods;
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

} // namespace

// Greedy with one step back: only the last star seen ever needs to give way, so the time is bounded by the product of
// the lengths whatever the glob looks like.
bool glob_matches(std::string_view glob, std::string_view path) {
  std::size_t at_glob = 0;
  std::size_t at_path = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_path = 0;
  while (at_path < path.size()) {
    if (at_glob < glob.size() && glob[at_glob] == '*') {
      star = at_glob++;
      star_path = at_path;
    } else if (at_glob < glob.size() && glob[at_glob] == path[at_path]) {
      ++at_glob;
      ++at_path;
    } else if (star != std::string_view::npos) {
      at_glob = star + 1;
      at_path = ++star_path;
    } else {
      return false;
    }
  }
  while (at_glob < glob.size() && glob[at_glob] == '*') ++at_glob;
  return at_glob == glob.size();
}

const Route* find_route(const std::vector<Route>& routes, std::string_view method, std::string_view path) {
  for (const Route& route : routes) {
    if (has_method(route, method) && glob_matches(route.path, path)) return &route;
  }
  return nullptr;
}

// A byte that no glob contains stands for "anything at all": only a star of the wide glob can take it, and what a star
// takes once it takes always.
bool glob_covers(std::string_view wide, std::string_view narrow) {
  std::string sample(narrow);
  std::replace(sample.begin(), sample.end(), '*', '\x01');
  return glob_matches(wide, sample);
}

bool shadows(const Route& earlier, const Route& later) {
  return glob_covers(earlier.path, later.path) &&
         std::all_of(later.policy.methods.begin(), later.policy.methods.end(),
                     [&](const std::string& method) { return has_method(earlier, method); });
}

} // namespace oncekey
