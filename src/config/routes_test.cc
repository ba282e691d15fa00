#include "config/config.h"

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
  EXPECT_FALSE(glob_covers("/v1/**", "/v1/*")) << "/v1 is a path of the second alone";
  EXPECT_FALSE(glob_covers("/v1/*/*", "/v1/*")) << "/v1 is a path of the second alone";
  EXPECT_TRUE(glob_covers("/v*", "/v1/*"));
  EXPECT_TRUE(glob_covers("/*/*", "/*"));
}

TEST(Shadows, OnlyWhenPathsAndMethodsAreAllTaken) {
  EXPECT_TRUE(shadows(route("/*", {"POST", "PATCH"}), route("/v1/*", {"POST"})));
  EXPECT_FALSE(shadows(route("/*", {"POST"}), route("/v1/*", {"POST", "DELETE"})));
  EXPECT_FALSE(shadows(route("/v1/*"), route("/*")));
  EXPECT_TRUE(shadows(route("/v1/*"), route("/v1")));
  Route any_case = route("/orders");
  any_case.policy.path_case = PathCase::ignore;
  EXPECT_TRUE(shadows(any_case, route("/Orders")));
  EXPECT_FALSE(shadows(route("/orders"), any_case));
  EXPECT_TRUE(shadows(route("/*"), any_case));
}

} // namespace
} // namespace oncekey
