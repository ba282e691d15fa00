#include "base/log.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace oncekey {
namespace {

// What the log writes to standard error, without the time in front.
template <class Write>
std::string written(LogLevel least, Write write) {
  testing::internal::CaptureStderr();
  {
    Log log(least);
    write(log);
    log.flush();
  }
  const std::string line = testing::internal::GetCapturedStderr();
  const std::size_t level = line.find("level=");
  return level == std::string::npos ? line : line.substr(level);
}

TEST(Log, ALineIsAnEventAndItsPairs) {
  EXPECT_EQ(written(LogLevel::info,
                    [](Log& log) {
                      log.info("started", {{"port", 8080}, {"store", "memory:"}});
                    }),
            "level=info event=started port=8080 store=memory:\n");
}

TEST(Log, ValuesCannotBreakTheLine) {
  EXPECT_EQ(written(LogLevel::info,
                    [](Log& log) {
                      log.warning("odd", {{"path", "/a b"},
                                          {"quote", "x\"y\\z"},
                                          {"forged", "1\nlevel=error event=fake"},
                                          {"empty", ""},
                                          {"escape", "\x1b[31m"},
                                          {"pair", "a=b"}});
                    }),
            "level=warning event=odd path=\"/a b\" quote=\"x\\\"y\\\\z\" forged=\"1\\x0alevel=error event=fake\" "
            "empty=\"\" escape=\"\\x1b[31m\" pair=\"a=b\"\n");
}

TEST(Log, WhatAClientCanRepeatIsWrittenOnceASecondForEachPlace) {
  const std::string lines = written(LogLevel::info, [](Log& log) {
    for (int i = 0; i < 1000; ++i) {
      log.seldom(LogLevel::warning, "failed", "/a", {{"route", "/a"}});
      log.seldom(LogLevel::warning, "failed", "/b", {{"route", "/b"}});
      log.seldom(LogLevel::debug, "failed", "/c", {{"route", "/c"}});
    }
  });
  EXPECT_NE(lines.find("event=failed route=/a\n"), std::string::npos);
  EXPECT_NE(lines.find("event=failed route=/b\n"), std::string::npos);
  EXPECT_EQ(lines.find("/c"), std::string::npos);
  EXPECT_LT(std::count(lines.begin(), lines.end(), '\n'), 1000);
}

TEST(Log, AJsonLineIsAnObject) {
  testing::internal::CaptureStderr();
  Log log(LogLevel::info, LogFormat::json);
  log.warning("odd", {{"port", 8080}, {"part", 0.5}, {"yes", true}, {"text", "1"}, {"bytes", "a\"\\\n\xff\x1b"}});
  log.seldom(LogLevel::info, "often", {}, {}, std::chrono::seconds(0));
  log.seldom(LogLevel::info, "often", {}, {}, std::chrono::seconds(60));
  log.flush();
  std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines.substr(0, 9), "{\"time\":\"");
  EXPECT_NE(
      lines.find("Z\",\"level\":\"warning\",\"event\":\"odd\",\"port\":8080,\"part\":0.5,\"yes\":true,\"text\":\"1\","
                 "\"bytes\":\"a\\\"\\\\\\u000a\\ufffd\\u001b\"}\n"),
      std::string::npos)
      << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
}

TEST(Log, LinesBelowTheLeastLevelAreDropped) {
  EXPECT_EQ(written(LogLevel::error, [](Log& log) { log.warning("quiet"); }), "");
  EXPECT_EQ(written(LogLevel::warning,
                    [](Log& log) {
                      EXPECT_FALSE(log.enabled(LogLevel::info));
                      EXPECT_TRUE(log.enabled(LogLevel::error));
                    }),
            "");
}

TEST(Log, BracesInValuesAreJustText) {
  EXPECT_EQ(written(LogLevel::debug,
                    [](Log& log) {
                      log.error("braces", {{"target", "/x?{key}"}});
                    }),
            "level=error event=braces target=/x?{key}\n");
}

} // namespace
} // namespace oncekey
