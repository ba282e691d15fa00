#include "config/load.h"
#include "support/parsed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

namespace oncekey {
namespace {

using testing::Eq;
using testing::HasSubstr;
using testing::StartsWith;

std::string file_with(const std::string& text) {
  const std::string path = testing::TempDir() + "oncekey_flags_" + std::to_string(::getpid()) + ".toml";
  std::ofstream(path) << text;
  return path;
}

Result<Config> config_of(const ServeFlags& flags) {
  return config_or_fault(read_config(flags, NamedFiles::left_alone));
}

TEST(Flags, MakeOneRouteForEverything) {
  ServeFlags flags;
  flags.texts["listen"] = "127.0.0.1:1";
  flags.texts["admin"] = "127.0.0.1:2";
  flags.texts["upstream"] = "http://127.0.0.1:3";
  flags.texts["store"] = "memory:";
  flags.texts["policy"] = "stripe-v1";
  flags.scope = {"header:X-Account", "header:X-User?"};
  flags.texts["lease"] = "5s";
  flags.texts["retention"] = "1h";
  flags.threads = 2;
  const auto config = config_of(flags);
  ASSERT_TRUE(config.ok()) << config.fault().message;
  EXPECT_EQ(config->listen.port, 1);
  EXPECT_EQ(config->admin.port, 2);
  EXPECT_EQ(config->upstream.port, 3);
  EXPECT_EQ(config->store, "memory:");
  EXPECT_EQ(config->threads, 2u);
  ASSERT_EQ(config->routes.size(), 1u);
  EXPECT_EQ(config->routes[0].path, "/*");
  EXPECT_EQ(config->routes[0].policy.name, "stripe-v1");
  EXPECT_EQ(config->routes[0].policy.scope.size(), 2u);
  EXPECT_EQ(config->routes[0].policy.lease, std::chrono::seconds(5));
  EXPECT_EQ(config->routes[0].policy.retention, std::chrono::hours(1));
}

TEST(Flags, ThatAreWrongAreNamedAsFlags) {
  ServeFlags flags;
  flags.texts["upstream"] = "127.0.0.1:3";
  flags.texts["require_durability"] = "disk";
  const auto config = config_of(flags);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, HasSubstr("--upstream: \"127.0.0.1:3\" is not an upstream"));
  EXPECT_THAT(config.fault().message, HasSubstr("--require-durability: \"disk\" is not one of"));
}

TEST(Flags, ThatAreUnsafeTogetherAreRefused) {
  ServeFlags flags;
  flags.texts["upstream"] = "http://127.0.0.1:3";
  flags.texts["lease"] = "48h";
  const auto config = config_of(flags);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, StartsWith("--lease: retention (24h) is shorter than lease (2d)"));
}

TEST(Flags, WithoutAnUpstreamAreRefused) {
  const auto config = config_of({});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message,
              Eq("--upstream: is missing: say which API to protect, as in --upstream http://127.0.0.1:9090"));
}

TEST(Flags, DoNotTakeATokenThatEveryoneCouldSee) {
  ServeFlags flags;
  flags.texts["upstream"] = "http://127.0.0.1:3";
  flags.texts["admin_token"] = "0123456789abcdef";
  const auto config = config_of(flags);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, StartsWith("--admin-token: write env:NAME or file:PATH"));
}

TEST(Flags, BesideAFileReplaceWhereItListensForwardsAndStores) {
  ServeFlags flags;
  flags.config = file_with("listen = \"127.0.0.1:1\"\nlease = \"5s\"\n[[route]]\npath = \"/a\"\n");
  flags.texts["listen"] = "127.0.0.1:11";
  flags.texts["admin"] = "127.0.0.1:12";
  flags.texts["upstream"] = "http://127.0.0.1:13";
  flags.texts["store"] = "memory:";
  const auto config = config_of(flags);
  ASSERT_TRUE(config.ok()) << config.fault().message;
  EXPECT_EQ(config->listen.port, 11);
  EXPECT_EQ(config->admin.port, 12);
  EXPECT_EQ(config->upstream.port, 13);
  EXPECT_EQ(config->store, "memory:");
  ASSERT_EQ(config->routes.size(), 1u);
  EXPECT_EQ(config->routes[0].path, "/a");
  EXPECT_EQ(config->routes[0].policy.lease, std::chrono::seconds(5));
}

TEST(Flags, BesideAFileAreRefusedWhereTheyContradictIt) {
  ServeFlags flags;
  flags.config = file_with("upstream = \"http://127.0.0.1:3\"\n");
  flags.texts["lease"] = "5s";
  flags.scope = {"global"};
  const auto config = config_of(flags);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, HasSubstr("--lease: contradicts --config: change lease in "));
  EXPECT_THAT(config.fault().message, HasSubstr("--scope: contradicts --config"));
}

TEST(Flags, BesideAFileAreCheckedTogetherWithIt) {
  ServeFlags flags;
  flags.config = file_with("listen = \"127.0.0.1:1\"\n");
  flags.texts["upstream"] = "http://127.0.0.1:1";
  const auto config = config_of(flags);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.fault().message, StartsWith("--upstream: upstream is the gateway's own listen address"));
}

} // namespace
} // namespace oncekey
