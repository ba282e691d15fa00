#include "base/shares.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace oncekey {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

std::array<ShareLimit, kResources> limits_of(const ShareLimit& limit) {
  std::array<ShareLimit, kResources> limits;
  limits.fill(limit);
  return limits;
}

class SharesTest : public testing::Test {
 protected:
  // A hundred in all, a quarter for each address and a tenth for each account once half is in use.
  Shares shares_{limits_of({100, 25, 10, 50})};
  Parties::Ref alice_ = shares_.addresses().join("192.0.2.1");
  Parties::Ref bob_ = shares_.addresses().join("192.0.2.2");
  Parties::Ref account_ = shares_.accounts().join("account");

  Holding holding_of(const Parties::Ref& address, const Parties::Ref* account = nullptr) {
    return {shares_, Resource::places, address.get(), account == nullptr ? nullptr : account->get()};
  }
};

TEST_F(SharesTest, OneAddressAloneMayHoldHalfOfEverything) {
  Holding holding = holding_of(alice_);
  EXPECT_EQ(holding.try_add(50), Grant::given);
  EXPECT_EQ(holding.try_add(1), Grant::address_over);
  EXPECT_EQ(holding.held(), 50u);
  EXPECT_EQ(shares_.in_use(Resource::places), 50u);
}

TEST_F(SharesTest, ASecondAddressFindsItsShareWhenTheFirstHoldsHalf) {
  Holding first = holding_of(alice_);
  Holding second = holding_of(bob_);
  ASSERT_EQ(first.try_add(50), Grant::given);
  EXPECT_EQ(second.try_add(25), Grant::given);
  EXPECT_EQ(second.try_add(1), Grant::address_over);
}

TEST_F(SharesTest, AnAccountIsCountedWhateverAddressesItComesFrom) {
  Holding first = holding_of(alice_, &account_);
  Holding second = holding_of(bob_, &account_);
  ASSERT_EQ(first.try_add(50), Grant::given);
  EXPECT_EQ(second.try_add(1), Grant::account_over);
  EXPECT_EQ(account_.get()->held(Resource::places), 50u);
}

TEST_F(SharesTest, TheLimitItselfComesFirst) {
  Holding exempt(shares_, Resource::places, nullptr);
  ASSERT_EQ(exempt.try_add(100), Grant::given);
  Holding more = holding_of(bob_);
  EXPECT_EQ(more.try_add(1), Grant::all_used);
}

TEST_F(SharesTest, WhatIsLetGoIsFreeAgainForAll) {
  {
    Holding holding = holding_of(alice_, &account_);
    holding.add(120); // exists already, and is counted whatever the limits say
    Holding moved = std::move(holding);
    EXPECT_EQ(moved.held(), 120u);
  }
  EXPECT_EQ(shares_.in_use(Resource::places), 0u);
  EXPECT_EQ(alice_.get()->held(Resource::places), 0u);
  EXPECT_EQ(account_.get()->held(Resource::places), 0u);
}

TEST_F(SharesTest, ResourcesAreCountedApart) {
  Holding places = holding_of(alice_);
  Holding bytes(shares_, Resource::buffered_bytes, alice_.get());
  ASSERT_EQ(places.try_add(50), Grant::given);
  EXPECT_EQ(bytes.try_add(50), Grant::given);
}

TEST_F(SharesTest, TheLevelDrainsWithinTheHour) {
  Party& alice = *alice_.get();
  const auto now = steady_clock::now();
  Shares::add_to_level(alice, 1000, 1000, now);
  EXPECT_FALSE(Shares::level_is_over(alice, 1000, now));
  Shares::add_to_level(alice, 500, 1000, now);
  EXPECT_TRUE(Shares::level_is_over(alice, 1000, now));
  EXPECT_TRUE(Shares::level_is_over(alice, 1000, now + seconds(1700)));
  EXPECT_FALSE(Shares::level_is_over(alice, 1000, now + seconds(1900)));
}

TEST(PartiesTest, OneNameIsOnePartyAndStaysWhileItIsReferredTo) {
  Parties parties(16);
  const Parties::Ref one = parties.join("one");
  Holding holding = [&] {
    static Shares shares(limits_of({100, 25, 10, 50}));
    return Holding(shares, Resource::places, one.get());
  }();
  ASSERT_EQ(holding.try_add(3), Grant::given);
  for (int number = 0; number < 10'000; ++number) (void)parties.join("new-" + std::to_string(number));
  EXPECT_EQ(parties.join("one").get(), one.get());
  EXPECT_EQ(one.get()->held(Resource::places), 3u);
  EXPECT_LE(parties.size(), 64u);
}

TEST(PartiesTest, EverNewNamesForgetThemselvesAndNotTheHeaviest) {
  Parties parties(64);
  const auto now = steady_clock::now();
  { Shares::add_to_level(*parties.join("heavy").get(), 1'000'000, 1000, now); }
  for (int number = 0; number < 10'000; ++number) {
    Shares::add_to_level(*parties.join("new-" + std::to_string(number)).get(), 1, 1000, now);
  }
  EXPECT_LE(parties.size(), 96u);
  EXPECT_TRUE(Shares::level_is_over(*parties.join("heavy").get(), 1000, now));
}

TEST(PartyOfAddressTest, IPv6CountsByItsNetwork) {
  EXPECT_EQ(party_of_address("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(party_of_address("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(party_of_address("2001:db8:1:2::1"), "2001:db8:1:2::/64");
  EXPECT_EQ(party_of_address("::ffff:192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(party_of_address("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(party_of_address("unix"), "unix");
}

} // namespace
} // namespace oncekey
