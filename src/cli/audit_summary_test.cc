#include "cli/audit_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace oncekey {
namespace {

const std::string kRecordId(64, 'a');

// A line of the log for each line of text, as in "claimed 7" or "completed 7 status=201"; the first one is of second 1.
std::string summary_of(const std::string& text) {
  boost::json::array lines;
  std::istringstream in(text);
  for (std::string row; std::getline(in, row);) {
    boost::json::object line{{"id", kRecordId}, {"at", "t" + std::to_string(lines.size() + 1)}};
    std::istringstream words(row);
    std::string event;
    words >> event;
    line["event"] = event;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const std::string value = equals == std::string::npos ? word : word.substr(equals + 1);
      const std::string name = equals == std::string::npos ? "fence" : word.substr(0, equals);
      if (name == "fence" || name == "status") {
        line[name] = std::stoi(value);
      } else {
        line[name] = value;
      }
    }
    lines.push_back(std::move(line));
  }
  const std::string summary = audit_summary(lines);
  const std::string begin = "\nrecord aaaaaaaaaaaa: ";
  EXPECT_TRUE(summary.starts_with(begin) && summary.ends_with("\n")) << summary;
  return summary.substr(begin.size(), summary.size() - begin.size() - 1);
}

TEST(AuditSummary, AnAnswerThatWasKeptIsOneExecution) {
  EXPECT_EQ(summary_of("claimed 1\ncompleted 1 status=201\nreplayed 1 status=201\nrefused 1 decision=mismatch"),
            "executed once; claimed at t1, answered 201 at t2; the answer given again once, at t3; 1 refused as a "
            "different request");
}

TEST(AuditSummary, AnExpiredKeyIsExecutedAnew) {
  EXPECT_EQ(summary_of("claimed 1\ncompleted 1 status=201\nclaimed 2\ncompleted 2 status=201"),
            "executed 2 times; claimed at t1, answered 201 at t2; claimed anew at t3, answered 201 at t4");
}

TEST(AuditSummary, ACallThatGoesOnHasNoOutcomeYet) {
  EXPECT_EQ(summary_of("claimed 1"),
            "executed at most once; claimed at t1, its end is not in these lines; it is at work, or its outcome is "
            "unknown");
}

TEST(AuditSummary, TheAnswerOfAHeldOwnerThatLivesCountsInAnyOrder) {
  const std::string once = "executed once; claimed at t1, answered 201 at ";
  EXPECT_EQ(summary_of("claimed 1\nheld 1\ncompleted 1 status=201"), once + "t3");
  EXPECT_EQ(summary_of("claimed 1\ncompleted 1 status=201\nheld 1"), once + "t2");
}

TEST(AuditSummary, ATakeoverThatSentNothingLeavesTheOutcomeUnknown) {
  EXPECT_EQ(summary_of("claimed 9\nabandoned 9\ntaken_over 10\nreleased 10"),
            "executed at most once; claimed at t1, abandoned at t2; taken over at t3, released at t4: the request was "
            "not sent; its outcome is unknown");
}

TEST(AuditSummary, AnOwnerThatWasOvertakenMayHaveExecutedToo) {
  EXPECT_EQ(summary_of("claimed 9\ntaken_over 10\ncompleted 10 status=201\nlease_lost 9"),
            "executed up to 2 times; claimed at t1, lease lost at t4; taken over at t2, answered 201 at t3");
}

TEST(AuditSummary, TheAnswerToAProbeIsThatOfAnEarlierExecution) {
  EXPECT_EQ(summary_of("claimed 1\nabandoned 1\ntaken_over 2 decision=probe\ncompleted 2 status=200"),
            "executed up to 2 times; claimed at t1, abandoned at t2; taken over at t3 to ask the API (probe), answered "
            "200 at t4");
}

TEST(AuditSummary, WhatIsInOtherLinesIsSaidToBeMissing) {
  EXPECT_EQ(summary_of("replayed 1 status=201"),
            "its execution is not in these lines; the answer given again once, at t1");
  EXPECT_EQ(summary_of("taken_over 2\ncompleted 2 status=201"),
            "executed up to 2 times; an earlier claim is not in these lines; taken over at t1, answered 201 at t2");
  EXPECT_EQ(
      summary_of("replayed 1 status=201\nclaimed 2\ncompleted 2 status=201"),
      "executed up to 2 times; an earlier claim is not in these lines; claimed anew at t2, answered 201 at t3; the "
      "answer given again once, at t1");
  EXPECT_EQ(summary_of("held 1"),
            "its execution is not in these lines; a claim that is not in these lines, held at t1; its outcome is "
            "unknown");
}

TEST(AuditSummary, RequestsThatWentThroughUnprotectedMayHaveExecuted) {
  EXPECT_EQ(summary_of("bypassed\nclaimed 1\ncompleted 1 status=201"),
            "executed up to 2 times; claimed at t2, answered 201 at t3; let through unprotected once, at t1");
}

TEST(AuditSummary, OnlyWhatAnOperatorReallyDidChangesTheOutcome) {
  EXPECT_EQ(summary_of("claimed 1\nheld 1\naction action=release result=fault who=eve\naction action=complete "
                       "result=refused:live who=eve"),
            "executed at most once; claimed at t1, held at t2; perhaps released by hand at t3, by eve: the store did "
            "not say; its outcome is unknown");
  EXPECT_EQ(
      summary_of("claimed 1\nheld 1\naction action=rerun result=done who=bob\ntaken_over 2\ncompleted 2 status=201"),
      "executed up to 2 times; claimed at t1, held at t2; rerun allowed by hand at t3, by bob; taken over at t4, "
      "answered 201 at t5");
  EXPECT_EQ(summary_of("action action=retry result=done who=bob"), "its execution is not in these lines");
}

} // namespace
} // namespace oncekey
