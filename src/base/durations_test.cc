#include "base/durations.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(Durations, AreANumberAndAUnit) {
  const auto millis = [](std::string_view text) {
    const auto duration = parse_duration(text);
    return duration.ok() ? duration->count() : -1;
  };
  EXPECT_EQ(millis("250ms"), 250);
  EXPECT_EQ(millis("60s"), 60'000);
  EXPECT_EQ(millis("5m"), 300'000);
  EXPECT_EQ(millis("24h"), 86'400'000);
  EXPECT_EQ(millis("30d"), 2'592'000'000);
  EXPECT_EQ(millis("0s"), 0);
  for (const std::string_view text : {"", "s", "5", "-5s", "+5s", "1.5s", "5 s", " 5s", "5s ", "5S", "5min", "1h30m",
                                      "99999999999999999999s", "9223372036854775807d"}) {
    EXPECT_EQ(millis(text), -1) << text;
  }
}

TEST(Durations, AFaultNamesTheTextAndTheUnits) {
  const auto duration = parse_duration("5 parsecs");
  ASSERT_FALSE(duration.ok());
  EXPECT_EQ(duration.fault().kind, FaultKind::invalid);
  EXPECT_NE(duration.fault().message.find("\"5 parsecs\""), std::string::npos);
  EXPECT_NE(duration.fault().message.find("24h"), std::string::npos);
}

TEST(Durations, AreWrittenAsShortAsIsExactAndReadBackTheSame) {
  const std::pair<long, std::string> expected[] = {
      {0, "0s"},       {1, "1ms"},        {1500, "1500ms"},    {90'000, "90s"},     {60'000, "60s"},
      {300'000, "5m"}, {3'600'000, "1h"}, {86'400'000, "24h"}, {172'800'000, "2d"}, {2'592'000'000, "30d"}};
  for (const auto& [millis, text] : expected) {
    EXPECT_EQ(format_duration(Millis(millis)), text);
    EXPECT_EQ(parse_duration(text)->count(), millis);
  }
}

TEST(Bytes, AreANumberWithABinaryUnitOrNone) {
  const auto bytes = [](std::string_view text) {
    const auto size = parse_bytes(text);
    return size.ok() ? static_cast<std::int64_t>(*size) : -1;
  };
  EXPECT_EQ(bytes("0"), 0);
  EXPECT_EQ(bytes("1048576"), 1 << 20);
  EXPECT_EQ(bytes("10B"), 10);
  EXPECT_EQ(bytes("64KiB"), 64 << 10);
  EXPECT_EQ(bytes("8MiB"), 8 << 20);
  EXPECT_EQ(bytes("2GiB"), std::int64_t{2} << 30);
  for (const std::string_view text : {"", "KiB", "8MB", "8 MiB", "-1", "1.5MiB", "9223372036854775807KiB"}) {
    EXPECT_EQ(bytes(text), -1) << text;
  }
}

} // namespace
} // namespace oncekey
