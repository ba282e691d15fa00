#include "http/exchange.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(GrowingBodies, TakeTheMemoryThatWasCounted) {
  std::string body;
  std::size_t counted = 0;
  const auto count = [&](std::size_t growth) {
    counted += growth;
    return true;
  };
  constexpr std::uint64_t kWhole = 1'000'000;
  const std::string piece(16'000, 'x');
  while (body.size() + piece.size() <= kWhole) {
    ASSERT_TRUE(grow_body(body, piece.size(), kWhole, count));
    body.append(piece);
    ASSERT_EQ(body.capacity(), counted);
  }
  EXPECT_LE(counted, kWhole);
}

TEST(GrowingBodies, AskForLessBeforeTheyGiveUp) {
  std::string body(1000, 'x');
  body.shrink_to_fit();
  std::size_t room = 300;
  const auto admit = [&](std::size_t growth) {
    if (growth > room) return false;
    room -= growth;
    return true;
  };
  EXPECT_TRUE(grow_body(body, 200, 10'000, admit));
  EXPECT_EQ(room, 100u);
  body.append(200, 'y');
  EXPECT_FALSE(grow_body(body, 200, 10'000, admit));
  EXPECT_EQ(body.size(), 1200u);
  EXPECT_EQ(room, 100u);
}

} // namespace
} // namespace oncekey
