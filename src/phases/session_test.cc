#include "phases/session.h"

#include <gtest/gtest.h>

namespace oncekey::phases {
namespace {

TEST(InDialect, ReplacesTokensAndLeavesTheRest) {
  EXPECT_EQ(in_dialect("SELECT 1 {skip_locked}", Dialect::sqlite, Millis(0)), "SELECT 1 ");
  EXPECT_EQ(in_dialect("SELECT 1 {skip_locked}", Dialect::postgres, Millis(0)), "SELECT 1 FOR UPDATE SKIP LOCKED");
  EXPECT_EQ(in_dialect("id {in $2}", Dialect::postgres, Millis(0)), "id = ANY ($2::bigint[])");
  EXPECT_EQ(in_dialect("id {in $2}", Dialect::sqlite, Millis(0)), "id IN (SELECT value FROM json_each($2))");
  EXPECT_EQ(in_dialect("1 + {at $2 attempts}", Dialect::postgres, Millis(0)),
            "1 + ($2::bigint[])[least(attempts + 1, cardinality($2::bigint[]))]");
  EXPECT_EQ(in_dialect("1 + {at $2 attempts}", Dialect::sqlite, Millis(0)),
            "1 + json_extract($2, '$[' || min(attempts, json_array_length($2) - 1) || ']')");
}

TEST(InDialect, TheClockMayBeAhead) {
  EXPECT_NE(in_dialect("{now}", Dialect::sqlite, Millis(5)).find(" + 5)"), std::string::npos);
  EXPECT_EQ(in_dialect("{now}", Dialect::postgres, Millis(0)),
            "(floor(extract(epoch from clock_timestamp()) * 1000)::bigint)");
}

TEST(IdList, IsWhatTheDialectReads) {
  const std::int64_t ids[] = {1, 22};
  EXPECT_EQ(id_list(Dialect::sqlite, ids), "[1,22]");
  EXPECT_EQ(id_list(Dialect::postgres, ids), "{1,22}");
  EXPECT_EQ(id_list(Dialect::sqlite, {}), "[]");
}

} // namespace
} // namespace oncekey::phases
