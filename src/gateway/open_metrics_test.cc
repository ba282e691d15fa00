#include "gateway/open_metrics.h"

#include "gateway/metrics.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(OpenMetrics, CountersGaugesAndHistogramsAreWrittenAsTheStandardSays) {
  prometheus::Registry registry;
  counters(registry, "oncekey_things_total", "Things, \"quoted\"\nand more").Add({{"kind", "a\\b\"c\nd"}}).Increment(3);
  gauges(registry, "oncekey_level", "A level").Add({}).Set(0.25);
  const std::vector<double> bounds{0.1, 1};
  prometheus::Histogram& histogram = histograms(registry, "oncekey_seconds", "Times").Add({{"route", "/v1"}}, bounds);
  histogram.Observe(0.05);
  histogram.Observe(7);
  BucketExemplars exemplars(bounds);
  TraceId trace{};
  trace.fill(0xcd);
  exemplars.note(7, trace);
  const std::string text = open_metrics_text(registry.Collect(), [&](const std::string& family, const auto& metric) {
    return family == "oncekey_seconds" && metric.label.front().value == "/v1" ? &exemplars : nullptr;
  });
  EXPECT_NE(text.find("# TYPE oncekey_things counter\n# HELP oncekey_things Things, \\\"quoted\\\"\\nand more\n"
                      "oncekey_things_total{kind=\"a\\\\b\\\"c\\nd\"} 3\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# TYPE oncekey_level gauge\n# HELP oncekey_level A level\noncekey_level 0.25\n"),
            std::string::npos);
  EXPECT_NE(text.find("oncekey_seconds_bucket{route=\"/v1\",le=\"0.1\"} 1\n"
                      "oncekey_seconds_bucket{route=\"/v1\",le=\"1.0\"} 1\n"
                      "oncekey_seconds_bucket{route=\"/v1\",le=\"+Inf\"} 2 # "
                      "{trace_id=\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\"} 7 "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("oncekey_seconds_count{route=\"/v1\"} 2\noncekey_seconds_sum{route=\"/v1\"} 7.05\n"),
            std::string::npos);
  EXPECT_TRUE(text.ends_with("# EOF\n"));
}

TEST(OpenMetrics, AnExemplarBelongsToTheFirstBucketThatHoldsIt) {
  const std::vector<double> bounds{0.1, 1};
  BucketExemplars exemplars(bounds);
  exemplars.note(0.1, {});
  exemplars.note(0.5, {});
  exemplars.note(0.7, {});
  EXPECT_EQ(exemplars.of(0)->value, 0.1);
  EXPECT_EQ(exemplars.of(1)->value, 0.7) << "the newest";
  EXPECT_FALSE(exemplars.of(2));
}

TEST(OpenMetrics, AreSentToClientsThatAskForThem) {
  EXPECT_TRUE(
      accepts_open_metrics("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_TRUE(accepts_open_metrics("text/plain, application/openmetrics-text; q=0.75"));
  EXPECT_FALSE(accepts_open_metrics("application/openmetrics-text;q=0, text/plain"));
  EXPECT_FALSE(accepts_open_metrics("text/plain"));
  EXPECT_FALSE(accepts_open_metrics("*/*"));
  EXPECT_FALSE(accepts_open_metrics(""));
}

} // namespace
} // namespace oncekey
