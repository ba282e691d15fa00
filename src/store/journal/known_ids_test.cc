#include "store/journal/known_ids.h"

#include <gtest/gtest.h>

#include <thread>

namespace oncekey {
namespace {

std::string front_of_number(std::uint64_t number) {
  return {static_cast<const char*>(static_cast<const void*>(&number)), sizeof number};
}
std::string fronts_of(std::uint64_t from, std::uint64_t to) {
  std::string fronts;
  for (std::uint64_t i = from; i < to; ++i) fronts += front_of_number(i);
  return fronts;
}
std::size_t had(const KnownIds& known, std::uint64_t from, std::uint64_t to) {
  std::size_t count = 0;
  for (std::uint64_t i = from; i < to; ++i) count += known.may_have(front_of_number(i)) ? 1 : 0;
  return count;
}

TEST(KnownIds, MayHaveEveryIdUntilAllAreNoted) {
  KnownIds known(KnownIds::Complete::no);
  known.note(fronts_of(0, 10));
  EXPECT_EQ(had(known, 0, 1000), 1000u);
}

TEST(KnownIds, HasNoneAtFirst) {
  const KnownIds known(KnownIds::Complete::yes);
  EXPECT_EQ(had(known, 0, 1000), 0u);
  EXPECT_EQ(known.bytes(), 0u);
}

TEST(KnownIds, NeverDeniesAnIdThatWasNotedAndFewOthersPass) {
  constexpr std::uint64_t kIds = 300'000; // five layers
  KnownIds known(KnownIds::Complete::yes);
  for (std::uint64_t i = 0; i < kIds; i += 1000) known.note(fronts_of(i, i + 1000));
  EXPECT_EQ(had(known, 0, kIds), kIds);
  EXPECT_LT(had(known, kIds, 2 * kIds), kIds / 100);
  EXPECT_LT(known.bytes(), kIds * 5) << "16 bits an id, and as many again in the newest layer";
}

TEST(KnownIds, CountsTheFrontOfAnIdAlone) {
  KnownIds known(KnownIds::Complete::yes);
  known.note(front_of_number(7));
  EXPECT_TRUE(known.may_have(front_of_number(7) + std::string(24, 'x')));
}

TEST(KnownIds, IsAskedWhileItGrows) {
  constexpr std::uint64_t kIds = 100'000;
  KnownIds known(KnownIds::Complete::yes);
  std::atomic<std::uint64_t> noted = 0;
  std::jthread writer([&] {
    for (std::uint64_t i = 0; i < kIds; i += 100) {
      known.note(fronts_of(i, i + 100));
      noted = i + 100;
    }
  });
  for (std::uint64_t seen = 0; seen < kIds; seen = noted) {
    const std::uint64_t from = seen >= 100 ? seen - 100 : 0;
    EXPECT_EQ(had(known, from, seen), seen - from);
  }
}

TEST(SealedIds, HaveKeysOfTheirOwn) {
  EXPECT_TRUE(is_sealed_ids_key(sealed_ids_key(5)));
  EXPECT_FALSE(is_sealed_ids_key(std::string(18, 'x')));
  EXPECT_FALSE(is_sealed_ids_key(std::string(kSealedIdsPrefix) + std::string(22, 'x'))) << "a record's id may begin so";
}

} // namespace
} // namespace oncekey
