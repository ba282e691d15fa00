#include "core/trace.h"

#include <gtest/gtest.h>

#include <string>

namespace oncekey {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kGood = "00-" + kTrace + "-00f067aa0ba902b7-01";

TEST(Trace, IsReadFromAWellFormedTraceparent) {
  const auto trace = parse_traceparent(kGood);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->front(), 0x4b);
  EXPECT_EQ(trace->back(), 0x36);
}

TEST(Trace, OfALaterVersionMayBeFollowedByMore) {
  EXPECT_TRUE(parse_traceparent("cc" + kGood.substr(2) + "-what-comes-later"));
  EXPECT_FALSE(parse_traceparent("cc" + kGood.substr(2) + ".more"));
  EXPECT_FALSE(parse_traceparent(kGood + "-more")) << "version 00 has four parts";
}

TEST(Trace, IsNotReadFromAnythingElse) {
  const std::string zeros(32, '0');
  for (const std::string& bad :
       {std::string(), std::string("00"), "ff" + kGood.substr(2), "0x" + kGood.substr(2), kGood.substr(0, 54),
        "00-" + zeros + "-00f067aa0ba902b7-01", "00-" + kTrace + "-0000000000000000-01",
        "00-" + std::string("4BF92F3577B34DA6A3CE929D0E0E4736") + "-00f067aa0ba902b7-01",
        "00_" + kTrace + "-00f067aa0ba902b7-01", "00-" + kTrace + "-00f067aa0ba902b7-0g", " " + kGood}) {
    EXPECT_FALSE(parse_traceparent(bad)) << bad;
  }
}

TEST(Trace, OfTwoFieldsIsNone) {
  Headers headers;
  EXPECT_FALSE(trace_of(headers));
  headers.add("Traceparent", kGood);
  EXPECT_TRUE(trace_of(headers));
  headers.add("traceparent", kGood);
  EXPECT_FALSE(trace_of(headers));
}

TEST(Trace, AContextIsWrittenAsItWasRead) {
  const auto context = parse_trace_context(kGood);
  ASSERT_TRUE(context);
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(traceparent_of(*context), kGood);
  EXPECT_FALSE(parse_trace_context("00-" + kTrace + "-00f067aa0ba902b7-00")->sampled());
  EXPECT_FALSE(parse_trace_context("00-" + kTrace + "-0000000000000000-01"));
}

} // namespace
} // namespace oncekey
