#include "http/parser.h"
#include "http/plain_head.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

struct Parsed {
  ParseFault fault;
  RequestHead head;
};

Parsed parse(std::string_view text) {
  Parsed parsed;
  RequestParser parser;
  parsed.fault = parser.parse_head(text, parsed.head);
  return parsed;
}

int status_of(std::string_view text) { return parse(text).fault.status; }

TEST(RequestParser, KeepsFieldsInOrderWithTheirCase) {
  const Parsed parsed = parse("POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nx-ONE: 2\r\n\r\n");
  ASSERT_EQ(parsed.fault.status, 0);
  EXPECT_EQ(parsed.head.method, "POST");
  EXPECT_EQ(parsed.head.target, "/a?b=c");
  EXPECT_EQ(parsed.head.path(), "/a");
  EXPECT_EQ(parsed.head.headers.lines(), "Host: x\r\nX-One: 1\r\nx-ONE: 2\r\n");
  EXPECT_EQ(parsed.head.framing, Framing::none);
}

TEST(RequestParser, KnowsItsFraming) {
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n").head.framing, Framing::length);
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n").head.content_length, 5u);
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").head.framing, Framing::chunked);
}

TEST(RequestParser, TakesAnAbsoluteTargetApart) {
  const Parsed parsed = parse("GET http://real.example?q HTTP/1.1\r\nHost: other.example\r\n\r\n");
  ASSERT_EQ(parsed.fault.status, 0);
  EXPECT_EQ(parsed.head.target, "/?q");
  EXPECT_EQ(parsed.head.headers.get("Host"), "real.example");
  EXPECT_EQ(parsed.head.headers.count("Host"), 1u);
}

TEST(RequestParser, TakesAHandfulOfConnectionOptionsAndNoMore) {
  const auto with_options = [](int count) {
    std::string text = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nConnection: ";
    for (int i = 1; i < count; ++i) text += "z,";
    return text + "\r\n\r\n";
  };
  EXPECT_EQ(status_of(with_options(64)), 0);
  EXPECT_EQ(status_of(with_options(65)), 400);
}

struct Refused {
  const char* why;
  const char* text;
  int status;
};

class RequestParserRefuses : public testing::TestWithParam<Refused> {};

TEST_P(RequestParserRefuses, WhatHasTwoMeanings) {
  EXPECT_EQ(status_of(GetParam().text), GetParam().status) << GetParam().why;
}

INSTANTIATE_TEST_SUITE_P(
    Requests, RequestParserRefuses,
    testing::Values(
        Refused{"a method in small letters", "post / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        Refused{"a method in mixed letters", "Post / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        Refused{"length and chunked",
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        Refused{"chunked and length",
                "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
        Refused{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
        Refused{"signed length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n", 400},
        Refused{"huge length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
        Refused{"unknown coding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400},
        Refused{"chunked before another", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
                400},
        Refused{"coding hidden behind another",
                "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
        Refused{"chunked twice", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400},
        Refused{"two codings",
                "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        Refused{"chunked in 1.0", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        Refused{"fold", "GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", 400},
        Refused{"bare line feed", "GET / HTTP/1.1\nHost: x\r\n\r\n", 400},
        Refused{"blank before colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
        Refused{"blank line of blanks", "GET / HTTP/1.1\r\n X: y\r\nHost: x\r\n\r\n", 400},
        Refused{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
        Refused{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400},
        Refused{"bad host", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400},
        Refused{"version", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
        Refused{"connect", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 501},
        Refused{"star", "GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        Refused{"fragment", "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        Refused{"expectation", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: magic\r\n\r\n", 417}));

TEST(RequestParser, RefusesControlBytesInValues) {
  EXPECT_EQ(status_of(std::string_view("GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 36)), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: x\r\nX: a\x01\r\n\r\n"), 400);
}

TEST(RequestParser, HandsOutChunksAndDropsTrailers) {
  RequestParser parser;
  RequestHead head;
  ASSERT_EQ(parser.parse_head("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", head).status, 0);
  std::string_view rest = "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Late: 1\r\n\r\nGET";
  std::string body;
  while (!parser.done()) {
    BodyPiece piece;
    ASSERT_EQ(parser.parse_body(rest, piece).status, 0);
    ASSERT_TRUE(piece.consumed > 0 || !piece.bytes.empty());
    body.append(piece.bytes);
    rest.remove_prefix(piece.consumed);
  }
  EXPECT_EQ(body, "abcde");
  EXPECT_EQ(rest, "GET");
}

TEST(ResponseParser, MendsWhatRfc9112AsksAProxyToMend) {
  ResponseParser parser(HeadOnly::no);
  ResponseHead head;
  ASSERT_EQ(parser.parse_head("HTTP/1.1 200 OK\r\nX-A : 1\r\nX-B: a\r\n  b\r\nContent-Length: 0\r\n\r\n", head).status,
            0);
  EXPECT_EQ(head.headers.get("X-A"), "1");
  EXPECT_EQ(head.headers.get("X-B"), "a b");
}

TEST(ResponseParser, TakesAStatusLineWithoutTheBlankBehindTheStatus) {
  ResponseParser parser(HeadOnly::no);
  ResponseHead head;
  ASSERT_EQ(parser.parse_head("HTTP/1.1 201\r\nContent-Length: 0\r\nX-A : 1\r\n\r\n", head).status, 0);
  EXPECT_EQ(head.status, 201);
  EXPECT_EQ(head.reason, "");
  EXPECT_EQ(head.headers.get("X-A"), "1");
}

TEST(ResponseParser, HasNoBodyWhereNoneBelongs) {
  for (const char* text : {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
                           "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"}) {
    ResponseParser parser(HeadOnly::no);
    ResponseHead head;
    ASSERT_EQ(parser.parse_head(text, head).status, 0);
    EXPECT_TRUE(parser.done());
    EXPECT_EQ(head.framing, Framing::none);
  }
  ResponseParser parser(HeadOnly::yes);
  ResponseHead head;
  ASSERT_EQ(parser.parse_head("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", head).status, 0);
  EXPECT_TRUE(parser.done());
}

TEST(ResponseParser, TellsAShortBodyFromAWholeOne) {
  ResponseHead head;
  ResponseParser short_of_length(HeadOnly::no);
  ASSERT_EQ(short_of_length.parse_head("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", head).status, 0);
  EXPECT_NE(short_of_length.end_of_input().status, 0);

  ResponseParser until_close(HeadOnly::no);
  ASSERT_EQ(until_close.parse_head("HTTP/1.1 200 OK\r\n\r\n", head).status, 0);
  EXPECT_EQ(head.framing, Framing::until_close);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_EQ(until_close.end_of_input().status, 0);
  EXPECT_TRUE(until_close.done());
}

TEST(ResponseParser, RefusesAmbiguousFraming) {
  for (const char* text : {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 999 Odd\r\n\r\n"}) {
    ResponseParser parser(HeadOnly::no);
    ResponseHead head;
    EXPECT_NE(parser.parse_head(text, head).status, 0) << text;
  }
}

// What a parser makes of a head, in words that can be compared.
std::string said_of(const RequestHead& head) {
  return fmt::format("{} {} {}", head.method, head.target, head.expects_continue);
}
std::string said_of(const ResponseHead& head) { return fmt::format("{} {}", head.status, head.reason); }
template <class Head>
std::string outcome_of(const std::string& text) {
  MessageParser<Head> parser;
  Head head;
  const ParseFault fault = parser.parse_head(text, head);
  if (fault) return fmt::format("{} {}", fault.status, fault.detail);
  return fmt::format("{} version {} framing {} length {} keep_alive {} done {}\n{}", said_of(head), head.version,
                     static_cast<int>(head.framing), head.content_length, head.keep_alive, parser.done(),
                     head.headers.lines());
}

// A head is parsed as it is, and once more with a last field that only Beast takes. Nothing else may differ.
template <class Head>
void expect_same_from_beast(std::string_view text) {
  const std::optional<std::size_t> length = head_length(text);
  if (!length) return;
  const std::string head(text.substr(0, *length));
  Head plain;
  if (!parse_plain_head(head, plain)) return; // Beast has parsed it anyway
  std::string by_beast = head;
  by_beast.insert(by_beast.size() - 2, "X-Tab:\tonly Beast\r\n");
  std::string expected = outcome_of<Head>(by_beast);
  if (const std::size_t tab = expected.find("X-Tab: only Beast\r\n"); tab != std::string::npos) expected.resize(tab);
  EXPECT_EQ(outcome_of<Head>(head), expected) << head;
}

template <class Head>
void expect_same_from_beast_however_it_is_changed(const std::string& text) {
  Head plain;
  ASSERT_TRUE(parse_plain_head(text, plain)) << text;
  expect_same_from_beast<Head>(text);
  using namespace std::string_view_literals;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char c : "\r\n\t\0 :,;\"/?#%=-_019aAzZ~\x7f\x80\xff"sv) {
      std::string changed = text;
      changed[at] = c;
      expect_same_from_beast<Head>(changed);
      expect_same_from_beast<Head>(std::string(text).insert(at, 1, c));
    }
    expect_same_from_beast<Head>(std::string(text).erase(at, 1));
  }
}

TEST(PlainHead, IsWhatBeastMakesOfItHoweverItIsChanged) {
  expect_same_from_beast_however_it_is_changed<RequestHead>(
      "POST /a?b HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n");
  expect_same_from_beast_however_it_is_changed<RequestHead>(
      "GET http://h/ HTTP/1.0\r\nConnection: keep-alive\r\nX: a b\r\n\r\n");
  expect_same_from_beast_however_it_is_changed<ResponseHead>(
      "HTTP/1.1 201 Made it\r\nServer: s\r\nContent-Length: 7\r\nConnection: keep-alive\r\n\r\n");
  expect_same_from_beast_however_it_is_changed<ResponseHead>("HTTP/1.0 200 \r\nContent-Length: 0\r\n\r\n");
}

TEST(PlainHead, LeavesToBeastWhatNeedsJudgement) {
  for (const char* field :
       {"Transfer-Encoding: chunked", "Upgrade: websocket", "Proxy-Connection: close", "Connection: TE",
        "Content-Length: 1, 1", "Content-Length: 1\r\nContent-Length: 1", "Content-Length: 1234567890123456789",
        "Connection: close\r\nConnection: close", "X:", "X: ", "X:a", "X:  a", "X: a ", "X : a", " X: a", "X: \xe9"}) {
    RequestHead head;
    EXPECT_FALSE(parse_plain_head(fmt::format("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n\r\n", field), head)) << field;
  }
  for (const char* text :
       {"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 100 Go\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 201\r\nContent-Length: 0\r\n\r\n"}) {
    ResponseHead head;
    EXPECT_FALSE(parse_plain_head(text, head)) << text;
  }
}

TEST(PlainHead, GivesItsBodyByItsLength) {
  RequestParser parser;
  RequestHead head;
  ASSERT_EQ(parser.parse_head("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", head).status, 0);
  BodyPiece piece;
  ASSERT_EQ(parser.parse_body("ab", piece).status, 0);
  EXPECT_EQ(piece.bytes, "ab");
  EXPECT_FALSE(parser.done());
  ASSERT_EQ(parser.parse_body("cdeGET", piece).status, 0);
  EXPECT_EQ(piece.bytes, "cde");
  EXPECT_EQ(piece.consumed, 3u);
  EXPECT_TRUE(parser.done());
}

TEST(FinalStatus, IsReadFromTheFirstLineAlone) {
  EXPECT_EQ(final_status("HTTP/1.1 200 OK\r\nX: a\\0b"), 200);
  EXPECT_EQ(final_status("HTTP/1.0 503\r\n"), 503);
  EXPECT_EQ(final_status("HTTP/1.1 201\nX: 1\n\n"), 201);
  for (const char* text : {"", "HTTP/1.1 200", "HTTP/1.1 600 Beyond\r\n", "HTTP/1.1 099 Below\r\n",
                           "HTTP/1.1 2000 Long\r\n", "HTTP/1.1 2x0 Odd\r\n", "HTTP/2 200 OK\r\n",
                           "HTTP/1.1  200 OK\r\n", "HTTP/1.1 101 Switching\r\n", "SSH-2.0-OpenSSH\r\n"}) {
    EXPECT_EQ(final_status(text), std::nullopt) << text;
  }
}

} // namespace
} // namespace oncekey
