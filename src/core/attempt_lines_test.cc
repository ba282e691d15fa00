#include "core/attempt_lines.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(AttemptLines, WhatIsEncodedIsDecoded) {
  const std::vector<Attempt> before{{Time{Millis{17}}, "eu-1", {503, "Service Unavailable"}},
                                    {Time{Millis{18}}, "", {0, "connection refused"}}};
  const std::string text = encode_attempts(before);
  EXPECT_EQ(text, "17\teu-1\t503\tService Unavailable\n18\t\t0\tconnection refused\n");
  const auto after = decode_attempts(text);
  ASSERT_TRUE(after);
  EXPECT_EQ(encode_attempts(*after), text);
  EXPECT_EQ(decode_attempts("")->size(), 0u);
}

TEST(AttemptLines, AReasonIsCutBetweenCharactersAndHasNoControlCharacters) {
  EXPECT_EQ(attempt_reason("a\tb\r\nc\x7f"), "a b  c ");
  std::string umlauts = "x";
  while (umlauts.size() < 300) umlauts += "ü";
  EXPECT_EQ(attempt_reason(umlauts), umlauts.substr(0, 199));
  EXPECT_EQ(attempt_reason("\xff"), "\xEF\xBF\xBD");
}

TEST(AttemptLines, AnotherTextIsNone) {
  std::string many;
  for (std::size_t i = 0; i <= kAttemptsKept; ++i) many += "1\ta\t200\tOK\n";
  for (const std::string_view text : {"1\ta\t200\tOK", "1\ta\t200\n", "x\ta\t200\tOK\n", "1\ta\tx\tOK\n", "\n"})
    EXPECT_FALSE(decode_attempts(text)) << text;
  EXPECT_FALSE(decode_attempts(many));
}

} // namespace
} // namespace oncekey
