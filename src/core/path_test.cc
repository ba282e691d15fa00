#include "core/path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace oncekey {
namespace {

std::string normal(std::string_view path) { return std::string(NormalPath(path).text()); }

bool may_be(std::string_view path, std::string_view reading) {
  const NormalPath read(path);
  const auto& others = read.other_readings();
  return read.beyond_telling() || read.text() == reading ||
         std::find(others.begin(), others.end(), reading) != others.end();
}

TEST(NormalPaths, HaveOneSpelling) {
  const struct {
    const char* sent;
    const char* normal;
  } cases[] = {
      {"/", "/"},
      {"/orders", "/orders"},
      {"/orders/", "/orders"},
      {"//orders", "/orders"},
      {"///", "/"},
      {"/./orders", "/orders"},
      {"/orders/.", "/orders"},
      {"/x/../orders", "/orders"},
      {"/x/..", "/"},
      {"/a/b/../../orders", "/orders"},
      {"/x/%2e%2E/orders", "/orders"},
      {"/%6frders", "/orders"},
      {"/%6Frders", "/orders"},
      {"/orders;a=1", "/orders"},
      {"/orders;a=1/5;b", "/orders/5"},
      {"/;x/orders", "/orders"},
      {"/caf%c3%a9", "/caf%C3%A9"},
      {"/a%20b", "/a%20b"},
      {"/%40me/a%3Ab", "/@me/a:b"},
      {"/a{b}|c", "/a%7Bb%7D%7Cc"},
      {"/Orders", "/Orders"},
      {"/.well-known/idempotency", "/.well-known/idempotency"},
      {"/...", "/..."},
      {"*", "*"},
      {"", ""},
  };
  for (const auto& c : cases) {
    const NormalPath path(c.sent);
    EXPECT_EQ(path.text(), c.normal) << c.sent;
    EXPECT_EQ(path.doubt(), "") << c.sent;
  }
}

TEST(NormalPaths, AreInDoubtWhereServersDisagree) {
  const struct {
    const char* sent;
    const char* reading; // one that some server has
  } cases[] = {
      {"/v1%2Forders", "/v1/orders"},
      {"/v1%2forders", "/v1%2Forders"},
      {"/x%2F..%2Forders", "/orders"},
      {"/v1\\orders", "/v1/orders"},
      {"/v1%5Corders", "/v1/orders"},
      {"/orders%00.json", "/orders"},
      {"/ord%0aers", "/orders"},
      {"/%zzorders", "/%25zzorders"},
      {"/orders%", "/orders%25"},
      {"/%256frders", "/orders"},
      {"/%25252525256frders", "/orders"},
      {"/%u006frders", "/orders"},
      {"/orders%3Ba=1", "/orders"},
      {"/../orders", "/orders"},
      {"/a/../../orders", "/orders"},
      {"/a//../orders", "/a/orders"},
      {"/a//../orders", "/orders"},
      {"/x/..;/orders", "/orders"},
      {"/x/..;a/orders", "/x/..%3Ba/orders"},
      {"/a%2F%2F..%2Forders", "/a/orders"},
      {"/orders%2F..\\..%2F..", "/orders"},
      {"/gr\xc3\xb6\xc3\x9f"
       "e",
       "/gr%C3%B6%C3%9Fe"},
      {"/a\xff", "/a%FF"},
  };
  for (const auto& c : cases) {
    EXPECT_NE(NormalPath(c.sent).doubt(), "") << c.sent;
    EXPECT_TRUE(may_be(c.sent, c.reading)) << c.sent << " as " << c.reading;
  }
}

TEST(NormalPaths, WithDotSegmentsMayBeTakenAsSentBySomeServers) {
  EXPECT_TRUE(may_be("/x/../orders", "/x/../orders"));
  EXPECT_TRUE(NormalPath("/x/./orders").doubt().empty());
}

TEST(NormalPaths, OnlyEncodedSlashesAreToldFromOtherDoubts) {
  EXPECT_TRUE(NormalPath("/a%2Fb").only_encoded_slashes());
  EXPECT_EQ(NormalPath("/a%2Fb").text_with_slashes(), "/a/b");
  EXPECT_EQ(NormalPath("/a/b").text_with_slashes(), "/a/b");
  EXPECT_FALSE(NormalPath("/a%2Fb\\c").only_encoded_slashes());
  EXPECT_FALSE(NormalPath("/a%2Fb\xff").only_encoded_slashes());
  EXPECT_FALSE(NormalPath("/a%2Fb/../../../c").only_encoded_slashes());
  EXPECT_FALSE(NormalPath("/a").only_encoded_slashes());
}

TEST(NormalPaths, ThatNobodySendsAreNotReadInEveryWay) {
  EXPECT_TRUE(NormalPath("/a%2F\\%3B%00").beyond_telling());
  EXPECT_TRUE(NormalPath("/" + std::string(5000, 'a') + "%2F").beyond_telling());
  EXPECT_FALSE(NormalPath("/" + std::string(5000, 'a') + "/..").beyond_telling());
  EXPECT_LE(NormalPath("/a%2F\\..;//../x").other_readings().size(), 32u);
}

TEST(NormalPaths, NormalisedAgainStayAsTheyAre) {
  std::mt19937 random(20240607);
  const std::string_view pieces[] = {"/",    "//",  ".",   "..",  "%2e", "%2F", "%",      "%25", "2F",
                                     "41",   "%6f", "\\",  "%5c", ";",   "%3b", "a",      "Z",   "~",
                                     "\xff", "%00", "%ff", "{",   "*",   "é",   "%u0041", "=",   "@"};
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string path = "/";
    for (std::uint32_t left = random() % 12; left > 0; --left) path += pieces[random() % std::size(pieces)];
    const std::string once = normal(path);
    EXPECT_EQ(normal(once), once) << path;
    ASSERT_TRUE(once.starts_with('/')) << path;
    EXPECT_EQ(once.find("//"), std::string::npos) << path;
    EXPECT_EQ(once.find(';'), std::string::npos) << path;
    EXPECT_TRUE(std::all_of(once.begin(), once.end(), [](char c) { return c > ' ' && c < 0x7f; })) << path;
    EXPECT_TRUE(once == "/" || !once.ends_with('/')) << path;
  }
}

TEST(GlobsOfAConfiguration, AreNormalOrRefused) {
  EXPECT_EQ(normal_glob("/*"), "/*");
  EXPECT_EQ(normal_glob("*"), "*");
  EXPECT_EQ(normal_glob("*/refunds"), "*/refunds");
  EXPECT_EQ(normal_glob("/v1/*"), "/v1/*");
  EXPECT_EQ(normal_glob("//v1/orders/"), "/v1/orders");
  EXPECT_EQ(normal_glob("/%6Frders"), "/orders");
  EXPECT_EQ(normal_glob("/größe"), "/gr%C3%B6%C3%9Fe");
  for (const char* bad : {"/a/../b", "/./a", "/a;b", "/a%2Fb", "/a\\b", "/a%zz", "/a%3Bb", "/%2541"}) {
    EXPECT_EQ(normal_glob(bad), "") << bad;
  }
}

TEST(TargetsForPeople, ArePrintable) {
  EXPECT_EQ(printable_target("/nope\xff\x01 a%20b"), "/nope%FF%01%20a%20b");
  EXPECT_EQ(printable_target("/orders"), "/orders");
}

} // namespace
} // namespace oncekey
