#include "store/common/marker_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

class MarkerKeeperTest : public ::testing::Test {
 protected:
  MarkerKeeperTest() { keeper_.secret.fill(7); }

  static SharedStoreMeta meta(std::string generation, std::string replaces = "", bool lost = false) {
    return {{std::move(generation), std::move(replaces), 1, lost}, secret_of(7)};
  }
  static KeptSecret secret_of(std::uint8_t byte) {
    Secret secret;
    secret.fill(byte);
    return KeptSecret(secret, nullptr);
  }

  Log log_{LogLevel::error};
  MarkerKeeper keeper_{log_, "db.example", nullptr};
};

TEST_F(MarkerKeeperTest, AStoreThatStaysTheSameMayBeClaimedIn) {
  EXPECT_TRUE(keeper_.see(0, meta("a")));
  EXPECT_TRUE(keeper_.may_claim());
  EXPECT_FALSE(keeper_.must_note_loss(meta("a")));
}

TEST_F(MarkerKeeperTest, ALossIsNotedUntilTheMarkerSaysSo) {
  EXPECT_TRUE(keeper_.see(0, meta("a")));
  EXPECT_FALSE(keeper_.see(0, std::nullopt));
  EXPECT_FALSE(keeper_.may_claim());
  EXPECT_TRUE(keeper_.must_note_loss(std::nullopt));
  EXPECT_TRUE(keeper_.must_note_loss(meta("b")));
  EXPECT_FALSE(keeper_.must_note_loss(meta("b", "", true)));
}

TEST_F(MarkerKeeperTest, AnAcceptedLossEndsTheRefusals) {
  EXPECT_TRUE(keeper_.see(0, meta("a")));
  EXPECT_FALSE(keeper_.see(0, std::nullopt));
  EXPECT_TRUE(keeper_.see(0, meta("b", "*")));
  EXPECT_TRUE(keeper_.may_claim());
}

TEST_F(MarkerKeeperTest, TheSecretIsSealedAnewOnceNothingRefusesTheStart) {
  Sealer sealer(*SealingKeys::parse("1 " + std::string(64, 'a'), "keys"));
  MarkerKeeper keeper(log_, "db.example", &sealer);
  keeper.secret.fill(7);
  EXPECT_FALSE(keeper.must_reseal(secret_of(7))) << "the start may still be refused";
  sealer.let_reseal();
  EXPECT_TRUE(keeper.must_reseal(secret_of(7)));
  EXPECT_FALSE(keeper.must_reseal(KeptSecret(keeper.secret, &sealer))) << "it is sealed";
  EXPECT_FALSE(keeper.must_reseal(secret_of(8))) << "of another store";
  EXPECT_FALSE(keeper_.must_reseal(secret_of(7))) << "this gateway has no key";
}

TEST_F(MarkerKeeperTest, AnotherSecretNeedsARestartWhateverAnOperatorAccepted) {
  EXPECT_TRUE(keeper_.see(0, meta("a")));
  SharedStoreMeta other = meta("b", "*");
  other.secret = secret_of(8);
  EXPECT_TRUE(keeper_.see(0, other)) << "this gateway has noticed no loss";
  const Status may = keeper_.may_claim();
  ASSERT_FALSE(may);
  EXPECT_THAT(may.fault().message, testing::HasSubstr("restart this gateway"));
  EXPECT_TRUE(keeper_.see(0, meta("a")));
  EXPECT_TRUE(keeper_.may_claim());
}

} // namespace
} // namespace oncekey
