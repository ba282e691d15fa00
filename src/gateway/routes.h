// routes: which route a request falls under.
#pragma once

#include "config/config.h"
#include "core/path.h"

namespace oncekey {

// The first route whose glob and methods match a path in normal form; null for pass-through.
const Route* find_route(const std::vector<Route>& routes, std::string_view method, std::string_view path);
// The first route whose glob matches the path, whatever its methods.
const Route* route_of_path(const std::vector<Route>& routes, std::string_view path);

// The route of a path as sent.
struct RouteMatch {
  const Route* route = nullptr;
  // Servers may take the path for one that falls under `route`, and for another one too: refuse the request.
  bool ambiguous = false;
};
RouteMatch match_route(const std::vector<Route>& routes, std::string_view method, const NormalPath& path);

} // namespace oncekey
