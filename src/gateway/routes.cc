#include "gateway/routes.h"

#include <algorithm>

namespace oncekey {
namespace {

bool has_method(const Route& route, std::string_view method) {
  const auto& methods = route.policy.methods;
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

} // namespace

const Route* find_route(const std::vector<Route>& routes, std::string_view method, std::string_view path) {
  for (const Route& route : routes) {
    if (has_method(route, method) && glob_matches_folder(route.path, path, route.policy.path_case)) return &route;
  }
  return nullptr;
}

const Route* route_of_path(const std::vector<Route>& routes, std::string_view path) {
  for (const Route& route : routes) {
    if (glob_matches_folder(route.path, path, route.policy.path_case)) return &route;
  }
  return nullptr;
}

RouteMatch match_route(const std::vector<Route>& routes, std::string_view method, const NormalPath& path) {
  const Route* const route = find_route(routes, method, path.text());
  const bool in_doubt = !path.doubt().empty();
  if (!in_doubt && path.other_readings().empty()) return {route, false};
  // Of several routes that may be meant, one that enforces counts before one that observes.
  const Route* meant = nullptr;
  const auto may_mean = [&](const Route* other) {
    if (other == nullptr) return;
    if (meant == nullptr || (meant->policy.mode == Mode::observe && other->policy.mode == Mode::enforce)) meant = other;
  };
  if (path.beyond_telling()) {
    for (const Route& any : routes) may_mean(has_method(any, method) ? &any : nullptr);
    return {meant, meant != nullptr};
  }
  // An API that knows encoded slashes reads the path as it is; the record goes by the other reading, so that an API
  // that does not know them executes nothing twice.
  const bool allowed = route != nullptr && route->policy.allow_encoded_slash && path.only_encoded_slashes();
  if (in_doubt && !allowed) may_mean(route);
  for (const std::string& reading : path.other_readings()) {
    const Route* const other = find_route(routes, method, reading);
    if (other != route) may_mean(other);
  }
  return meant == nullptr ? RouteMatch{route, false} : RouteMatch{meant, true};
}

} // namespace oncekey
