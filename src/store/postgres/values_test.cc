#include "store/postgres/values.h"

#include <gtest/gtest.h>

namespace oncekey::postgres {
namespace {

TEST(AsText, LeavesGoodTextAlone) {
  EXPECT_EQ(as_text("/orders?x=1", TextEncoding::utf8), "/orders?x=1");
  EXPECT_EQ(as_text("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82", TextEncoding::utf8),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82");
}

TEST(AsText, MarksWhatAServerWouldRefuse) {
  using namespace std::string_view_literals;
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a\0b"sv, "a?b"},            // NUL
      {"\xff", "?"},                // never in UTF-8
      {"\xc3", "?"},                // cut short
      {"\xc3(", "?("},              // no continuation
      {"\xc0\xaf", "??"},           // longer than need be
      {"\xe0\x80\xaf", "???"},      // the same with three
      {"\xed\xa0\x80", "???"},      // half a surrogate pair
      {"\xf4\x90\x80\x80", "????"}, // beyond Unicode
      {"\xf0\x8f\xbf\xbf", "????"}, // longer than need be, with four
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(as_text(bytes, TextEncoding::utf8), text);
}

TEST(AsText, KeepsToAsciiWhereTheServersEncodingIsAnother) {
  EXPECT_EQ(as_text("gr\xc3\xbcn", TextEncoding::ascii), "gr??n");
}

TEST(AsText, CutsWhatIsTooLong) { EXPECT_EQ(as_text(std::string(100'000, 'x'), TextEncoding::utf8).size(), 65535u); }

} // namespace
} // namespace oncekey::postgres
