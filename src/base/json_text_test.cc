#include "base/json_text.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

std::string quoted(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return json;
}

TEST(JsonText, KeepsUtf8) {
  EXPECT_EQ(quoted("Gr\xc3\xbc\xc3\x9f"
                   "e"),
            "\"Gr\xc3\xbc\xc3\x9f"
            "e\"");
  EXPECT_EQ(quoted("\xe2\x82\xac \xf0\x9f\x9a\x80"), "\"\xe2\x82\xac \xf0\x9f\x9a\x80\"");
}

TEST(JsonText, ReplacesBytesThatAreNotUtf8OneByOne) {
  EXPECT_EQ(quoted("caf\xe9!"), "\"caf\\ufffd!\"");
  EXPECT_EQ(quoted("\xe2\x82"), "\"\\ufffd\\ufffd\"");
  EXPECT_EQ(quoted("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"") << "a surrogate";
}

TEST(JsonText, EscapesWhatEndsAStringOrMovesACursor) {
  EXPECT_EQ(quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(quoted(std::string_view("\0\n\x1b\x7f", 4)), "\"\\u0000\\u000a\\u001b\\u007f\"");
  EXPECT_EQ(quoted("\xc2\x9b"
                   "31m"),
            "\"\\u009b31m\"");
}

TEST(ProblemJson, EscapesItsParts) {
  EXPECT_EQ(problem_json("about:blank", "Bad Request", 400, "got \"x\""),
            R"({"type":"about:blank","title":"Bad Request","status":400,"detail":"got \"x\""})");
}

} // namespace
} // namespace oncekey
