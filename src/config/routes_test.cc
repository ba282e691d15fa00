#include "config/routes.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

Route route(std::string path, std::vector<std::string> methods = {"POST"}) {
  Route made;
  made.path = std::move(path);
  made.policy.methods = std::move(methods);
  return made;
}

TEST(Glob, StarMatchesAnythingAndTheRestItself) {
  const struct {
    const char* glob;
    const char* path;
    bool matches;
  } cases[] = {
      {"/*", "/", true},
      {"/*", "/v1/charges", true},
      {"/v1/*", "/v1/charges/ch_1", true},
      {"/v1/*", "/v1/", true},
      {"/v1/*", "/v1", false},
      {"/v1/*", "/v2/charges", false},
      {"/orders", "/orders", true},
      {"/orders", "/orders/", false},
      {"/orders", "/order", false},
      {"/orders", "/Orders", false},
      {"/a/*/c", "/a/b/c", true},
      {"/a/*/c", "/a/b/x/c", true},
      {"/a/*/c", "/a/c", false},
      {"*", "", true},
      {"", "", true},
      {"", "/", false},
      {"**", "/x", true},
      {"/*b*c", "/abxbc", true},
      {"/*b*c", "/abxb", false},
      {"/a?c", "/abc", false},
      {"/a*", "/*a", false},
  };
  for (const auto& c : cases) EXPECT_EQ(glob_matches(c.glob, c.path), c.matches) << c.glob << " on " << c.path;
}

TEST(Glob, WithManyStarsIsStillQuickOnALongPath) {
  EXPECT_FALSE(glob_matches("/*a*a*a*a*a*a*a*a*a*b", "/" + std::string(20'000, 'a')));
}

TEST(GlobCovers, TellsTheWiderFromTheNarrower) {
  EXPECT_TRUE(glob_covers("/*", "/v1/*"));
  EXPECT_TRUE(glob_covers("/v1/*", "/v1/charges"));
  EXPECT_TRUE(glob_covers("/v1/*", "/v1/*/refunds"));
  EXPECT_TRUE(glob_covers("/a", "/a"));
  EXPECT_FALSE(glob_covers("/v1/*", "/*"));
  EXPECT_FALSE(glob_covers("/v1/*", "/v*"));
  EXPECT_FALSE(glob_covers("/*/x", "/v1/*"));
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

TEST(Shadows, OnlyWhenPathsAndMethodsAreAllTaken) {
  EXPECT_TRUE(shadows(route("/*", {"POST", "PATCH"}), route("/v1/*", {"POST"})));
  EXPECT_FALSE(shadows(route("/*", {"POST"}), route("/v1/*", {"POST", "DELETE"})));
  EXPECT_FALSE(shadows(route("/v1/*"), route("/*")));
}

} // namespace
} // namespace oncekey
