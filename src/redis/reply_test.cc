#include "redis/reply.h"

#include <gtest/gtest.h>

namespace oncekey::redis {
namespace {

OwnedReply reply_from(std::string_view bytes) {
  ReplyReader reader;
  reader.feed(bytes);
  Result<std::optional<OwnedReply>> reply = reader.next();
  return **std::move(reply);
}

TEST(RedisReply, BytesThatComeInPiecesMakeAReply) {
  ReplyReader reader;
  for (const char c : std::string_view("*2\r\n$3\r\na\r\n\r\n:7\r")) {
    reader.feed({&c, 1});
    EXPECT_FALSE(reader.next()->has_value());
  }
  reader.feed("\n");
  const OwnedReply reply = **reader.next();
  EXPECT_EQ(reply.look()[0].text(), "a\r\n");
  EXPECT_EQ(reply.look()[1].integer(), 7);
}

TEST(RedisReply, WhatIsNotThereIsNothing) {
  const OwnedReply reply = reply_from("*2\r\n$-1\r\n+12\r\n");
  EXPECT_TRUE(reply.look()[0].is_nil());
  EXPECT_TRUE(reply.look()[9][3].is_nil());
  EXPECT_EQ(reply.look()[1].integer(), 12);
  EXPECT_FALSE(reply.look()[0].integer());
  EXPECT_EQ(reply.look()[1].size(), 0u);
}

TEST(RedisReply, BytesThatAreNoReplyAreAFault) {
  ReplyReader reader;
  reader.feed("HTTP/1.1 400 Bad Request\r\n");
  EXPECT_FALSE(reader.next());
}

TEST(RedisReply, ACommandIsWordsWithTheirLengths) {
  EXPECT_EQ(command({"GET", "a b"}), "*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
}

TEST(RedisServerError, RedirectionsNameAHost) {
  const ServerError moved = parse_error("MOVED 3999 10.0.0.7:6381");
  EXPECT_EQ(moved.kind, ErrorKind::moved);
  EXPECT_EQ(moved.host, (Host{"10.0.0.7", 6381}));
  const ServerError ask = parse_error("ASK 3999 :6381");
  EXPECT_EQ(ask.kind, ErrorKind::ask);
  EXPECT_EQ(ask.host, (Host{"", 6381}));
}

TEST(RedisServerError, ARedirectionToNowhereIsTriedAgain) {
  EXPECT_EQ(parse_error("MOVED 3999").kind, ErrorKind::again);
  EXPECT_EQ(parse_error("MOVED 3999 host").kind, ErrorKind::again);
}

TEST(RedisServerError, WhatCertainlyDidNothingIsKnown) {
  for (const std::string_view word : {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN"}) {
    EXPECT_EQ(parse_error(std::string(word) + " and so on").kind, ErrorKind::again) << word;
  }
  for (const std::string_view word : {"OOM", "BUSY", "NOREPLICAS", "MISCONF", "NOAUTH", "WRONGPASS", "NOPERM"}) {
    EXPECT_EQ(parse_error(std::string(word) + " and so on").kind, ErrorKind::refused) << word;
  }
  EXPECT_EQ(parse_error("NOSCRIPT No matching script.").kind, ErrorKind::no_script);
}

TEST(RedisServerError, AnythingElseMayHaveDoneSomething) {
  const ServerError error = parse_error("ERR user_script:7: bad argument");
  EXPECT_EQ(error.kind, ErrorKind::unclear);
  EXPECT_EQ(fault_of(error, {"h", 1}).kind, FaultKind::timeout);
  EXPECT_EQ(parse_error("").kind, ErrorKind::unclear);
  EXPECT_EQ(parse_error("OOMPH").kind, ErrorKind::unclear);
}

TEST(RedisServerError, AFaultHasTheServersWordsAndWhatToDo) {
  const Fault full = fault_of(parse_error("OOM command not allowed when used memory > 'maxmemory'."), {"h", 7000});
  EXPECT_EQ(full.kind, FaultKind::unavailable);
  EXPECT_NE(full.message.find("h:7000"), std::string::npos);
  EXPECT_NE(full.message.find("OOM command not allowed"), std::string::npos);
  EXPECT_NE(full.message.find("raise maxmemory"), std::string::npos);
  EXPECT_EQ(fault_of(parse_error("WRONGPASS invalid username-password pair"), {"h", 1}).kind, FaultKind::invalid);
}

} // namespace
} // namespace oncekey::redis
