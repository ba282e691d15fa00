#include "gateway/routes.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

Route route(std::string path, std::vector<std::string> methods = {"POST"}) {
  Route made;
  made.path = std::move(path);
  made.policy.methods = std::move(methods);
  return made;
}

TEST(FindRoute, TakesTheFirstWhosePathAndMethodMatch) {
  const std::vector<Route> routes{route("/v1/charges", {"POST"}), route("/v1/*", {"POST", "DELETE"})};
  EXPECT_EQ(find_route(routes, "POST", "/v1/charges"), &routes[0]);
  EXPECT_EQ(find_route(routes, "DELETE", "/v1/charges"), &routes[1]);
  EXPECT_EQ(find_route(routes, "POST", "/v1/refunds"), &routes[1]);
  EXPECT_EQ(find_route(routes, "GET", "/v1/charges"), nullptr);
  EXPECT_EQ(find_route(routes, "post", "/v1/charges"), nullptr);
  EXPECT_EQ(find_route(routes, "POST", "/v2/charges"), nullptr);
}

TEST(FindRoute, ATrailingStarTakesItsFolderToo) {
  const std::vector<Route> routes{route("/v1/*"), route("/*/x/*")};
  EXPECT_EQ(find_route(routes, "POST", "/v1"), &routes[0]);
  EXPECT_EQ(find_route(routes, "POST", "/v2/x"), &routes[1]);
  EXPECT_EQ(find_route(routes, "POST", "/v2"), nullptr);
}

TEST(FindRoute, ComparesWithoutCaseWhereTheApiDoes) {
  std::vector<Route> routes{route("/Orders/*")};
  EXPECT_EQ(find_route(routes, "POST", "/orders/1"), nullptr);
  routes[0].policy.path_case = PathCase::ignore;
  EXPECT_EQ(find_route(routes, "POST", "/oRDERS/1"), &routes[0]);
}

// "-": no route; "?": refused as ambiguous.
std::string matched(const std::vector<Route>& routes, std::string_view path) {
  const NormalPath normal(path);
  const RouteMatch match = match_route(routes, "POST", normal);
  return match.ambiguous ? "?" : match.route == nullptr ? "-" : match.route->path;
}

TEST(MatchRoute, FollowsEverySpellingAndRefusesWhatIsAmbiguousOnlyWhereItMatters) {
  const std::vector<Route> routes{route("/orders"), route("/v1/*"), route("/get", {"GET"})};
  const struct {
    const char* path;
    const char* route;
  } cases[] = {
      {"/orders", "/orders"},
      {"//orders/", "/orders"},
      {"/x/../orders", "/orders"},
      {"/orders;a=1", "/orders"},
      {"/other", "-"},
      {"/v1%2Forders", "?"},
      {"/v1/a%2Fb", "?"},
      {"/files/a%2Fb", "-"},
      {"/files/a\\b", "-"},
      {"/x\\..\\orders", "?"},
      {"/%256frders", "?"},
      {"/orders%00", "?"},
      {"/../orders", "?"},
      {"/../other", "-"},
      {"/v1/../orders", "?"},
      {"/v1/../other", "?"},
      {"/other/../v1/x", "/v1/*"},
      {"/orders\xff", "-"},
      {"/v1/caf\xe9", "?"},
      {"/a%2F\\%3B%00", "?"},
      {"/files/%2Fget", "-"},
  };
  for (const auto& c : cases) EXPECT_EQ(matched(routes, c.path), c.route) << c.path;
}

TEST(MatchRoute, OfSeveralThatMayBeMeantOneThatEnforcesIsNamed) {
  std::vector<Route> routes{route("/seen/*"), route("/orders")};
  routes[0].policy.mode = Mode::observe;
  EXPECT_EQ(match_route(routes, "POST", NormalPath("/seen/a%2Fb")).route, &routes[0]);
  EXPECT_EQ(match_route(routes, "POST", NormalPath("/seen%2F..%2Forders")).route, &routes[1]);
  EXPECT_EQ(match_route(routes, "POST", NormalPath("/a%2F\\%3B%00")).route, &routes[1]);
}

TEST(MatchRoute, EncodedSlashesMayBeAllowedWhereAllReadingsAreOneRoute) {
  std::vector<Route> routes{route("/projects/*"), route("/orders")};
  routes[0].policy.allow_encoded_slash = true;
  EXPECT_EQ(matched(routes, "/projects/group%2Fproject/issues"), "/projects/*");
  EXPECT_EQ(matched(routes, "/projects%2F..%2Forders"), "?");
  EXPECT_EQ(matched(routes, "/projects/a%2Fb\\c"), "?");
  EXPECT_EQ(matched(routes, "/projects/..%2F..%2Forders"), "?");
}

} // namespace
} // namespace oncekey
