#include "audit/chain.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(Chain, ALineNamesItsNumberAndTheHashOfTheLineBefore) {
  const ChainHash hash("a key");
  const std::string first = chained_line({}, R"("event":"opened")");
  EXPECT_EQ(first, R"({"n":1,"prev":")" + std::string(64, '0') + R"(","event":"opened"})");
  const std::string second = chained_line({1, hash.of(first)}, R"("event":"closed")");
  ASSERT_TRUE(place_of(second));
  EXPECT_EQ(place_of(second)->n, 2u);
  EXPECT_EQ(place_of(second)->prev, hash.of(first));
}

TEST(Chain, AHashNeedsItsKey) {
  EXPECT_EQ(ChainHash("a key").of("line"), ChainHash("a key").of("line"));
  EXPECT_NE(ChainHash("a key").of("line"), ChainHash("another").of("line"));
  EXPECT_NE(ChainHash("a key").of("line"), ChainHash("a key").of("Line"));
}

TEST(Chain, WhatDoesNotBeginAsALineHasNoPlace) {
  const std::string line = chained_line({}, R"("event":"x")");
  EXPECT_FALSE(place_of(""));
  EXPECT_FALSE(place_of("{}"));
  EXPECT_FALSE(place_of(std::string_view(line).substr(0, 40)));
  EXPECT_FALSE(place_of(std::string_view(line).substr(0, line.size() - 1))) << "torn";
  EXPECT_FALSE(place_of(line + std::string(kAuditLineMax, ' ') + "}"));
}

TEST(ChainHeads, AreReadBackAsTheyWereWritten) {
  ChainHeads heads = new_chain_heads();
  heads.keep("eu-1", {17, std::string(64, 'a')}, "2026-01-02T03:04:05.678Z");
  heads.keep("eu-2", {}, "2026-01-02T03:04:06.000Z");
  const auto read = decode_chain_heads(encode(heads));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->key, heads.key);
  EXPECT_EQ(read->of, heads.of);
}

TEST(ChainHeads, TheOldestOfTooManyIsForgotten) {
  ChainHeads heads = new_chain_heads();
  for (std::size_t i = 0; i <= ChainHeads::kChainsMax; ++i) {
    std::string time = "2026-01-02T03:04:05.678Z";
    if (i == 7) time[3] = '5';
    heads.keep("gateway-" + std::to_string(i), {}, time);
  }
  EXPECT_EQ(heads.of.size(), ChainHeads::kChainsMax);
  EXPECT_FALSE(heads.of.contains("gateway-7"));
}

TEST(ChainHeads, ATextThatIsCutOrChangedIsAFault) {
  ChainHeads heads = new_chain_heads();
  heads.keep("eu-1", {17, std::string(64, 'a')}, "2026-01-02T03:04:05.678Z");
  const std::string text = encode(heads);
  EXPECT_FALSE(decode_chain_heads("").ok());
  EXPECT_FALSE(decode_chain_heads("oncekey audit 2" + text.substr(15)).ok());
  EXPECT_FALSE(decode_chain_heads(text.substr(0, text.size() - 60)).ok());
}

} // namespace
} // namespace oncekey
