#include "workers/worker_loop.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(ErrorText, KeepsWhatCanBeReadAndMarksTheRest) {
  EXPECT_EQ(error_text("caf\xc3\xa9 is closed\n"), "caf\xc3\xa9 is closed\n");
  EXPECT_EQ(error_text(std::string_view("a\0b\xff\x1b", 5)), "a?b??");
  EXPECT_EQ(error_text("\xed\xa0\x80\xc0\xaf\xf5"), "??????") << "surrogates, overlong forms and what is past the end";
  EXPECT_EQ(error_text("\xe2\x82"), "??");
}

TEST(ErrorText, IsOfALengthThatAPersonReads) {
  EXPECT_EQ(error_text(std::string(5000, 'x')).size(), 1000u);
  const std::string umlauts = [] {
    std::string text = "x";
    for (int i = 0; i < 1000; ++i) text += "\xc3\xb6";
    return text;
  }();
  EXPECT_EQ(error_text(umlauts).size(), 999u) << "no character is cut in two";
}

} // namespace
} // namespace oncekey
