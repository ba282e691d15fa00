#include <oncekey/headers.h>

#include <gtest/gtest.h>

#include <vector>

namespace oncekey {
namespace {

Headers sample() {
  Headers headers;
  headers.add("Content-Type", "text/plain");
  headers.add("Set-Cookie", "a=1");
  headers.add("set-cookie", "b=2");
  headers.add("X-Empty", "");
  return headers;
}

TEST(Headers, KeepOrderAndCase) {
  const Headers headers = sample();
  ASSERT_EQ(headers.size(), 4u);
  EXPECT_EQ(headers[1].name, "Set-Cookie");
  EXPECT_EQ(headers[1].value, "a=1");
  EXPECT_EQ(headers[2].name, "set-cookie");
  EXPECT_EQ(headers.lines(), "Content-Type: text/plain\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-Empty: \r\n");
}

TEST(Headers, AreFoundWithoutRegardToCase) {
  const Headers headers = sample();
  EXPECT_EQ(headers.get("CONTENT-TYPE"), "text/plain");
  EXPECT_EQ(headers.get("SET-cookie"), "a=1") << "the first of that name";
  EXPECT_EQ(headers.count("Set-Cookie"), 2u);
  EXPECT_EQ(headers.count("Set-Cookies"), 0u);
  EXPECT_EQ(headers.get("X-Empty"), "") << "empty is not absent";
  EXPECT_FALSE(headers.has("X-Absent"));
}

TEST(Headers, AreFoundHoweverTheyCameIn) {
  Headers added;
  added.add("Content-Type", "text/plain");
  added.add("_odd", "1");
  Headers by_line;
  by_line.add_line("Content-Type: text/plain\r\n", 12);
  by_line.add(added, 1);
  Headers kept = added;
  kept.add("Origin", "x");
  kept.keep_if([](const Field& field) { return field.name != "Origin"; });
  for (const Headers& headers : {added, by_line, kept, *Headers::from_lines(added.lines())}) {
    EXPECT_EQ(headers.get("content-type"), "text/plain");
    EXPECT_EQ(headers.get("_ODD"), "1");
    EXPECT_FALSE(headers.has("Origin"));
    EXPECT_FALSE(headers.has(""));
  }
}

TEST(Headers, AreRebuiltFromTheirLines) {
  const Headers headers = sample();
  const auto again = Headers::from_lines(headers.lines());
  ASSERT_TRUE(again);
  ASSERT_EQ(again->size(), headers.size());
  for (std::size_t i = 0; i < headers.size(); ++i) {
    EXPECT_EQ((*again)[i].name, headers[i].name);
    EXPECT_EQ((*again)[i].value, headers[i].value);
  }
  EXPECT_EQ(again->lines(), headers.lines());
  EXPECT_TRUE(Headers::from_lines("")->empty());
}

TEST(Headers, LinesThatAreNoneAreRefused) {
  for (const std::string lines : {"A", "A: 1", "A: 1\n", "A:1\r\n", ": 1\r\n", "A\r\nB: 1\r\n", "A: 1\r\nB", "\r\n"}) {
    EXPECT_FALSE(Headers::from_lines(lines)) << lines;
  }
  EXPECT_EQ(Headers::from_lines("A: b: c\r\n")->get("A"), "b: c");
}

TEST(Headers, CanBeClearedAndCopied) {
  Headers headers = sample();
  const Headers copy = headers;
  headers.clear();
  EXPECT_TRUE(headers.empty());
  EXPECT_EQ(headers.lines(), "");
  headers.add("A", "1");
  EXPECT_EQ(headers.get("A"), "1");
  EXPECT_EQ(copy.get("Content-Type"), "text/plain");
}

TEST(Ascii, IsComparedWithoutCaseAndNothingElseIs) {
  EXPECT_TRUE(equal_ignoring_case("aBc-1", "AbC-1"));
  EXPECT_FALSE(equal_ignoring_case("abc", "abcd"));
  EXPECT_FALSE(equal_ignoring_case("[", "{")) << "they differ by the bit that letters differ by";
  EXPECT_FALSE(equal_ignoring_case("\xc3\x89", "\xc3\xa9"));
  EXPECT_TRUE(starts_with_ignoring_case("Bearer x", "bearer "));
  EXPECT_FALSE(starts_with_ignoring_case("Bear", "bearer"));
}

TEST(ListItems, AreTrimmedAndEmptyOnesLeftOut) {
  const auto items = [](std::string_view list) {
    std::vector<std::string_view> all;
    for_each_list_item(list, [&](std::string_view item) { all.push_back(item); });
    return all;
  };
  using Items = std::vector<std::string_view>;
  EXPECT_EQ(items("close, Keep-Alive ,\tX"), (Items{"close", "Keep-Alive", "X"}));
  EXPECT_EQ(items(",, a,, "), (Items{"a"}));
  EXPECT_EQ(items(""), Items{});
  EXPECT_EQ(items("a b"), (Items{"a b"}));
}

} // namespace
} // namespace oncekey
