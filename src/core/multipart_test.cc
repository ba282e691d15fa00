#include "core/canonical_json.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

struct Canonical {
  bool read = false;
  std::string bytes;
  friend bool operator==(const Canonical&, const Canonical&) = default;
};

Canonical canonical(std::string_view content_type, std::string_view body) {
  Headers headers;
  headers.add("Content-Type", content_type);
  Canonical out;
  out.read = canonical_multipart(headers, body, out.bytes);
  return out;
}

std::string part(std::string_view boundary, std::string_view head, std::string_view content) {
  return std::string("--")
      .append(boundary)
      .append("\r\n")
      .append(head)
      .append("\r\n\r\n")
      .append(content)
      .append("\r\n");
}

std::string body_of(std::string_view boundary, std::string_view text = "4 items") {
  return part(boundary, "Content-Disposition: form-data; name=\"note\"", text) +
         part(boundary, "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain",
              "line 1\r\nline 2\r\n\r\nline 4") +
         "--" + std::string(boundary) + "--\r\n";
}

constexpr std::string_view kOne = "multipart/form-data; boundary=one";
constexpr std::string_view kTwo = "multipart/form-data; boundary=----TwoTwo-2";

TEST(Multipart, EqualPartsAreEqualWhateverTheBoundary) {
  const Canonical first = canonical(kOne, body_of("one"));
  EXPECT_TRUE(first.read);
  EXPECT_EQ(first, canonical(kTwo, body_of("----TwoTwo-2")));
  EXPECT_EQ(first, canonical("Multipart/Form-Data; charset=utf-8; BOUNDARY=\"t\"", body_of("t")));
}

TEST(Multipart, AnotherContentNameFileNameTypeOrOrderIsAnotherBody) {
  const auto of = [](std::string_view parts) {
    const Canonical out = canonical(kOne, std::string(parts) + "--one--\r\n");
    EXPECT_TRUE(out.read) << parts;
    return out.bytes;
  };
  const std::string a = part("one", "Content-Disposition: form-data; name=\"a\"", "1");
  const std::string b = part("one", "Content-Disposition: form-data; name=\"b\"", "2");
  EXPECT_NE(of(a + b), of(b + a));
  EXPECT_NE(of(a), of(part("one", "Content-Disposition: form-data; name=\"a\"", "2")));
  EXPECT_NE(of(a), of(part("one", "Content-Disposition: form-data; name=\"A\"", "1")));
  EXPECT_NE(of(a), of(part("one", "Content-Disposition: form-data; name=\"a\"; filename=\"x\"", "1")));
  EXPECT_NE(of(a), of(part("one", "Content-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain", "1")));
  EXPECT_NE(of(a), of(a + a));
}

TEST(Multipart, ABoundaryInsideAContentForgesNoPart) {
  // Under the boundary `one` this is one part whose content looks like two parts of the boundary `two`.
  const std::string inner = part("two", "Content-Disposition: form-data; name=\"a\"", "1") +
                            part("two", "Content-Disposition: form-data; name=\"b\"", "2") + "--two--";
  const Canonical outer = canonical(kOne, part("one", "Content-Disposition: form-data; name=\"x\"", inner) + "--one--");
  const Canonical two = canonical("multipart/form-data; boundary=two", inner + "\r\n");
  EXPECT_TRUE(outer.read && two.read);
  EXPECT_NE(outer, two);
}

TEST(Multipart, TheEndOfTheLastLineDoesNotCount) {
  std::string without_end = body_of("one");
  without_end.resize(without_end.size() - 2);
  EXPECT_EQ(canonical(kOne, without_end), canonical(kOne, body_of("one")));
}

TEST(Multipart, WhatHasTwoMeaningsIsNotRead) {
  const std::string good = part("one", "Content-Disposition: form-data; name=\"a\"", "1");
  const std::string end = "--one--\r\n";
  EXPECT_TRUE(canonical(kOne, good + end).read);
  const std::string bodies[] = {
      "",
      "--one",
      "--one--",
      "--one--\r\n",
      good,                             // never ends
      good + "--one-",                  // nearly
      "preamble\r\n" + good + end,      //
      good + end + "epilogue",          //
      good + "--one \r\n" + end,        // padding
      good + "--oneX\r\n\r\n" + end,    // another boundary that begins like this one
      "--one\n" + good.substr(7) + end, // a bare LF
      part("one", "Content-Disposition: form-data; name=\"a\"", "1\n--one\nx") + end,
      part("one", "Content-Disposition: form-data; name=\"a\"", "in the middle --one of it") + end,
      part("one", "Content-Disposition: form-data\nX: y", "1") + end,
      part("one", std::string_view("Content-Disposition: form-data\0", 31), "1") + end,
      "--one\r\n\r\nno head\r\n" + end,
      "--one\r\nContent-Disposition: form-data\r\n" + end, // the head does not end
      "--one\r\n--one--\r\n",
  };
  for (const std::string& body : bodies) EXPECT_FALSE(canonical(kOne, body).read) << body;
}

TEST(Multipart, ABoundaryThatReadersDisagreeOnIsNone) {
  const std::string body = body_of("one");
  const std::string_view types[] = {
      "multipart/form-data",
      "multipart/form-data; boundary",
      "multipart/form-data; boundary=",
      "multipart/form-data; boundary=\"\"",
      "multipart/form-data; boundary=one; boundary=two",
      "multipart/form-data; boundary=one; boundary*=two",
      "multipart/form-data; boundary*0=o; boundary*1=ne",
      "multipart/form-data; boundary=\"one",
      "multipart/form-data; boundary=\"o\\ne\"",
      "multipart/form-data; boundary=\"one;\"",
      "multipart/form-data; boundary= one",
  };
  for (const std::string_view type : types) EXPECT_FALSE(canonical(type, body).read) << type;
  const std::string longest(70, 'b');
  EXPECT_TRUE(canonical("multipart/form-data; boundary=" + longest, body_of(longest)).read);
  EXPECT_FALSE(canonical("multipart/form-data; boundary=b" + longest, body_of("b" + longest)).read);
  Headers twice;
  twice.add("Content-Type", kOne);
  twice.add("Content-Type", kOne);
  std::string out;
  EXPECT_FALSE(canonical_multipart(twice, body, out));
}

} // namespace
} // namespace oncekey
