#include "cli/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace oncekey {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Progress::Clock::time_point kBegun{seconds(1000)};

TEST(ProgressTest, ATerminalSeesABarWithTheTimeLeft) {
  std::ostringstream out;
  {
    Progress progress(out, "verifying", 100, kBegun);
    progress.tell(std::uint64_t{1} << 30, std::uint64_t{4} << 30, kBegun + seconds(30));
  }
  EXPECT_EQ(out.str(), "\rverifying [#######.......................]  25 %, 1.0 GiB of 4.0 GiB, 90 s left\x1b[K\n");
}

TEST(ProgressTest, TheLineOfTheBarIsEndedOnceBeforeAnythingElseIsSaid) {
  std::ostringstream out;
  {
    Progress progress(out, "restoring", 20, kBegun);
    progress.end();
    progress.tell(50, 100, kBegun + seconds(10));
    progress.end();
    out << "done\n";
  }
  EXPECT_EQ(out.str(), "\rrestoring []  50 %, 50 bytes of 100 bytes, 10 s left\x1b[K\ndone\n");
}

TEST(ProgressTest, OthersSeeALineNowAndThen) {
  std::ostringstream out;
  {
    Progress progress(out, "backing up", 0, kBegun);
    progress.tell(100, 1000, kBegun + milliseconds(100));
    progress.tell(500, 1000, kBegun + seconds(5));
    progress.tell(600, 1000, kBegun + seconds(6));
    progress.tell(1000, 1000, kBegun + seconds(10));
  }
  EXPECT_EQ(out.str(),
            "backing up:  50 %, 500 bytes of 1000 bytes, 5 s left\nbacking up: 100 %, 1000 bytes of 1000 bytes\n");
}

TEST(ProgressTest, TheTimeLeftIsToldWhenItIsNoGuess) {
  std::ostringstream out;
  Progress progress(out, "restoring", 20, kBegun);
  progress.tell(1, 1000, kBegun + seconds(1));
  EXPECT_EQ(out.str(), "\rrestoring []   0 %, 1 bytes of 1000 bytes\x1b[K");
}

TEST(ProgressTest, QuickWorkSaysNothing) {
  std::ostringstream out;
  {
    Progress progress(out, "restoring", 80, kBegun);
    progress.tell(10, 10, kBegun + milliseconds(50));
    progress.tell(0, 0, kBegun + seconds(50));
  }
  EXPECT_EQ(out.str(), "");
}

TEST(ProgressTest, ANarrowTerminalHasNoRoomForABar) {
  std::ostringstream out;
  Progress progress(out, "verifying", 20, kBegun);
  progress.tell(50, 100, kBegun + seconds(1000));
  EXPECT_EQ(out.str(), "\rverifying []  50 %, 50 bytes of 100 bytes, 17 min left\x1b[K");
}

} // namespace
} // namespace oncekey
