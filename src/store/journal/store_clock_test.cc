#include "store/journal/store_clock.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

// Hands to turn.
struct Hands {
  Millis since_boot{5'000};
  Time wall{Millis{1'000'000}};
  bool wall_is_right = true;

  ClockSources sources(std::string boot_id = "boot-a") {
    return {[this] { return since_boot; }, [this] { return wall; }, std::move(boot_id),
            [this] { return wall_is_right; }};
  }
  // Off for that long; the time service has not answered yet.
  void reboot(Millis off, bool synchronised) {
    since_boot = Millis{10};
    wall += off;
    wall_is_right = synchronised;
  }
};

TEST(StoreClock, AFirstClockStartsAtTheWallClockAndFollowsTheTimeSinceBoot) {
  Hands hands;
  const StoreClock clock(hands.sources(), std::nullopt);
  EXPECT_EQ(clock.now(), Time{Millis{1'000'000}});
  hands.since_boot += Millis{70};
  EXPECT_EQ(clock.now(), Time{Millis{1'000'070}});
}

TEST(StoreClock, StepsOfTheWallClockDoNotMoveIt) {
  Hands hands;
  const StoreClock clock(hands.sources(), std::nullopt);
  hands.wall += Millis{3'600'000};
  EXPECT_EQ(clock.now(), Time{Millis{1'000'000}});
  hands.wall -= Millis{7'200'000};
  EXPECT_EQ(clock.now(), Time{Millis{1'000'000}});
}

TEST(StoreClock, OnTheSameBootItGoesOnExactlyWhateverTheWallClockShows) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.since_boot += Millis{500};
  hands.wall -= Millis{900'000};
  EXPECT_EQ(StoreClock(hands.sources(), mark).now(), Time{Millis{1'000'500}});
}

TEST(StoreClock, AfterAnotherBootItGoesOnFromTheWallClock) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.since_boot = Millis{10};
  hands.wall += Millis{60'000};
  EXPECT_EQ(StoreClock(hands.sources("boot-b"), mark).now(), Time{Millis{1'060'000}});
}

TEST(StoreClock, AfterAnotherBootItNeverGoesBackBehindTheMark) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.wall = Time{Millis{3}};
  EXPECT_EQ(StoreClock(hands.sources("boot-b"), mark).now(), Time{Millis{1'000'000}});
}

TEST(StoreClock, AnUnknownBootIsNeverTheSame) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(""), std::nullopt).mark();
  hands.wall += Millis{9};
  hands.since_boot += Millis{400};
  EXPECT_EQ(StoreClock(hands.sources(""), mark).now(), Time{Millis{1'000'009}});
}

TEST(StoreClock, AMachinePutBackToASnapshotDoesNotTurnItBack) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.since_boot -= Millis{4'000};
  EXPECT_GE(StoreClock(hands.sources(), mark).now(), mark.store_time);
}

TEST(StoreClock, AfterAnotherBootAWallClockThatIsAheadMovesNothingWhileItIsNotSynchronised) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.reboot(Millis{90'000'000}, false);
  const StoreClock clock(hands.sources("boot-b"), mark);
  EXPECT_EQ(clock.now(), mark.store_time);
  EXPECT_TRUE(clock.left_out());
  hands.since_boot += Millis{30};
  EXPECT_EQ(clock.now(), mark.store_time + Millis{30});
}

TEST(StoreClock, TheTimeTheMachineWasOffCountsOnceTheWallClockIsSynchronised) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.reboot(Millis{60'000}, false);
  StoreClock clock(hands.sources("boot-b"), mark);
  EXPECT_FALSE(clock.catch_up()) << "not synchronised yet";
  EXPECT_EQ(clock.now(), mark.store_time);
  hands.wall_is_right = true;
  EXPECT_TRUE(clock.catch_up());
  EXPECT_EQ(clock.now(), mark.store_time + Millis{60'000});
  EXPECT_FALSE(clock.left_out());
  hands.wall += Millis{3'600'000};
  EXPECT_FALSE(clock.catch_up()) << "steps after that move nothing";
}

TEST(StoreClock, ASynchronisedClockThatIsBehindDoesNotTurnItBack) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.reboot(Millis{-500'000}, false);
  StoreClock clock(hands.sources("boot-b"), mark);
  hands.wall_is_right = true;
  EXPECT_FALSE(clock.catch_up());
  EXPECT_EQ(clock.now(), mark.store_time);
}

TEST(StoreClock, TimeThatIsLeftOutIsNotCountedByALaterStartEither) {
  Hands hands;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.reboot(Millis{60'000}, false);
  StoreClock clock(hands.sources("boot-b"), mark);
  clock.leave_out();
  hands.wall_is_right = true;
  EXPECT_FALSE(clock.catch_up());
  const ClockMark later = clock.mark();
  hands.reboot(Millis{7'000}, true);
  EXPECT_EQ(StoreClock(hands.sources("boot-c"), later).now(), mark.store_time + Millis{7'000});
}

TEST(StoreClock, AMarkOfAWallClockThatWasNotSynchronisedSaysNothingAboutTheTimeSince) {
  Hands hands;
  hands.wall = Time{Millis{86'400'000}}; // 1970: a machine without a battery
  hands.wall_is_right = false;
  const ClockMark mark = StoreClock(hands.sources(), std::nullopt).mark();
  hands.reboot(Millis{1'700'000'000'000}, true);
  const StoreClock clock(hands.sources("boot-b"), mark);
  EXPECT_EQ(clock.now(), mark.store_time);
  EXPECT_FALSE(clock.left_out());
}

TEST(StoreClock, AWallClockThatWasSetOnTheLastBootDoesNotShortenLivesAfterTheNext) {
  Hands hands;
  StoreClock clock(hands.sources(), std::nullopt);
  hands.wall += Millis{3'600'000}; // set right after the start: the store goes on an hour behind it
  const ClockMark mark = clock.mark();
  hands.reboot(Millis{5'000}, true);
  EXPECT_EQ(StoreClock(hands.sources("boot-b"), mark).now(), mark.store_time + Millis{5'000});
}

TEST(StoreClock, AMarkSurvivesItsEncodingAndDamageIsSeen) {
  const ClockMark mark{"boot-a", Millis{12}, Time{Millis{34}}, Time{Millis{56}}};
  std::string bytes = encode_clock_mark(mark);
  const Result<ClockMark> decoded = decode_clock_mark(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->boot_id, "boot-a");
  EXPECT_EQ(decoded->since_boot, Millis{12});
  EXPECT_EQ(decoded->store_time, Time{Millis{34}});
  EXPECT_EQ(decoded->wall, Time{Millis{56}});
  EXPECT_FALSE(decode_clock_mark(encode_clock_mark({"boot-a", Millis{12}, Time{Millis{34}}, std::nullopt}))->wall);
  bytes[3] ^= 1;
  EXPECT_FALSE(decode_clock_mark(bytes));
  EXPECT_FALSE(decode_clock_mark(""));
}

TEST(StoreClock, TheSystemsClockRuns) {
  const StoreClock clock(ClockSources::of_system(), std::nullopt);
  EXPECT_LE(clock.now(), clock.now());
  EXPECT_GT(clock.now().time_since_epoch().count(), 0);
}

} // namespace
} // namespace oncekey
