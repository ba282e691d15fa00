#include "base/timestamp.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(Timestamp, IsReadBackAsItWasWritten) {
  const auto at = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'767'323'045'678));
  EXPECT_EQ(timestamp(at), "2026-01-02T03:04:05.678Z");
  EXPECT_EQ(parse_timestamp(timestamp(at)), at);
}

TEST(Timestamp, ShorterFormsBeginTheirSecondMinuteOrDay) {
  EXPECT_EQ(timestamp(*parse_timestamp("2026-01-02")), "2026-01-02T00:00:00.000Z");
  EXPECT_EQ(timestamp(*parse_timestamp("2026-01-02T03:04")), "2026-01-02T03:04:00.000Z");
  EXPECT_EQ(timestamp(*parse_timestamp("2026-01-02T03:04:05Z")), "2026-01-02T03:04:05.000Z");
}

TEST(Timestamp, AnythingElseIsNone) {
  for (const char* const text : {"", "today", "2026-1-2", "2026-13-01", "2026-02-30", "2026-01-02 03:04",
                                 "2026-01-02T24:00", "9999-01-01", "2026-01-02T03:04:05+01:00"})
    EXPECT_FALSE(parse_timestamp(text)) << text;
}

} // namespace
} // namespace oncekey
