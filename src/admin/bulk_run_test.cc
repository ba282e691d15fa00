#include "admin/bulk_run.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using std::chrono::milliseconds;

TEST(BulkRuns, RetriesAreSpreadOverAMinute) {
  for (const std::size_t jobs : {300u, 1000u, 10'000u}) {
    const auto whole = BulkRuns::pause_of(JobAction::retry, jobs) * jobs;
    EXPECT_LE(whole, BulkRuns::kSpread) << jobs;
    EXPECT_GE(whole, BulkRuns::kSpread * 9 / 10) << jobs;
  }
}

TEST(BulkRuns, AFewJobsDoNotTakeAMinute) {
  EXPECT_EQ(BulkRuns::pause_of(JobAction::retry, 1), milliseconds(0));
  EXPECT_EQ(BulkRuns::pause_of(JobAction::retry, 5), BulkRuns::kPauseMax);
  EXPECT_EQ(BulkRuns::pause_of(JobAction::retry, 100), BulkRuns::kPauseMax);
}

TEST(BulkRuns, WhatIsDroppedStormsNobody) { EXPECT_EQ(BulkRuns::pause_of(JobAction::drop, 10'000), milliseconds(0)); }

} // namespace
} // namespace oncekey
