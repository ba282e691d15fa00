#include "base/utf8.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(Utf8, IsKeptAndEverythingElseReplaced) {
  for (const char* good : {"", "plain", "gr\xc3\xb6\xc3\x9f\x65", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
    EXPECT_EQ(as_utf8(good), good);
  }
  const struct {
    std::string_view bytes;
    const char* shown;
  } cases[] = {
      {"/nope\xff", "/nope\xef\xbf\xbd"},
      {"caf\xe9!", "caf\xef\xbf\xbd!"},
      {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 // overlong
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // surrogate
      {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},                 // cut short
      {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
  };
  for (const auto& c : cases) {
    EXPECT_FALSE(is_utf8(c.bytes));
    EXPECT_EQ(as_utf8(c.bytes), c.shown);
    EXPECT_TRUE(is_utf8(as_utf8(c.bytes)));
  }
}

} // namespace
} // namespace oncekey
