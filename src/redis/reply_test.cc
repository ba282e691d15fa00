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

} // namespace
} // namespace oncekey::redis
