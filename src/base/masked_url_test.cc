#include "base/masked_url.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(MaskedUrl, HidesPasswordsAndNothingElse) {
  EXPECT_EQ(masked_url("journal:./data"), "journal:./data");
  EXPECT_EQ(masked_url("redis://host:6379/0"), "redis://host:6379/0");
  EXPECT_EQ(masked_url("redis://app:secret@host:6379/0"), "redis://app:***@host:6379/0");
  EXPECT_EQ(masked_url("redis://:secret@host"), "redis://:***@host");
  EXPECT_EQ(masked_url("postgres://app@host/db?sslmode=require"), "postgres://app@host/db?sslmode=require");
  EXPECT_EQ(masked_url("postgres:///db?user=app&password=secret&host=/run"),
            "postgres:///db?user=app&password=***&host=/run");
  EXPECT_EQ(masked_url("redis+cluster://u:p@a:1,b:2/"), "redis+cluster://u:***@a:1,b:2/");
}

TEST(MaskedUrl, HidesPasswordsThatShouldHaveBeenEscaped) {
  EXPECT_EQ(masked_url("redis://u:p@ss/w@host/0"), "redis://u:***@host/0");
  EXPECT_EQ(masked_url("redis://u:TOP?SECRET@h/0"), "redis://u:***");
  EXPECT_EQ(masked_url("redis://u:TOP?a=SECRET@h/0"), "redis://u:***");
  EXPECT_EQ(masked_url("postgres://h/d?password=p@ss&w"), "postgres://h:***");
  EXPECT_EQ(masked_url("postgres://h:5432/d?user=a@b&password=p@s"), "postgres://h:5432/d?user=a@b&password=***");
}

TEST(MaskedUrl, HidesPasswordsOfWhatIsNoUrl) {
  EXPECT_EQ(masked_url("redis:u:secret@host"), "redis:u:***@host");
  EXPECT_EQ(masked_url("host=h password='a b' dbname=d"), "host=h password=***");
  EXPECT_EQ(masked_url("journal:/data@home"), "journal:/data@home");
}

} // namespace
} // namespace oncekey
