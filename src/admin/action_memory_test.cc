#include "admin/action_memory.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

const PageAnswer kDone{200, "done"};

bool is_first(const ActionMemory::Asked& asked) { return std::holds_alternative<ActionMemory::First>(asked); }

TEST(ActionMemory, TheSecondClickGetsTheAnswerOfTheFirst) {
  ActionMemory memory;
  EXPECT_TRUE(is_first(memory.begin("alice", "k1", "release 1")));
  EXPECT_TRUE(std::holds_alternative<ActionMemory::UnderWay>(memory.begin("alice", "k1", "release 1")));
  memory.end("alice", "k1", kDone);
  const ActionMemory::Asked again = memory.begin("alice", "k1", "release 1");
  ASSERT_TRUE(std::holds_alternative<PageAnswer>(again));
  EXPECT_EQ(std::get<PageAnswer>(again).body, "done");
}

TEST(ActionMemory, TheSameKeyForAnotherActionIsRefused) {
  ActionMemory memory;
  memory.begin("alice", "k1", "release 1");
  memory.end("alice", "k1", kDone);
  EXPECT_TRUE(std::holds_alternative<ActionMemory::Other>(memory.begin("alice", "k1", "release 2")));
}

TEST(ActionMemory, OperatorsHaveKeysOfTheirOwn) {
  ActionMemory memory;
  memory.begin("alice", "k1", "release 1");
  EXPECT_TRUE(is_first(memory.begin("bob", "k1", "release 1")));
}

TEST(ActionMemory, WhatWasRefusedMayBeTriedAgain) {
  ActionMemory memory;
  memory.begin("alice", "k1", "release 1");
  memory.forget("alice", "k1");
  EXPECT_TRUE(is_first(memory.begin("alice", "k1", "release 1")));
}

TEST(ActionMemory, ForgetsTheOldestAndNeverOneThatIsUnderWay) {
  ActionMemory memory;
  memory.begin("alice", "under way", "x");
  memory.begin("alice", "oldest", "x");
  memory.end("alice", "oldest", kDone);
  for (std::size_t i = 0; i < ActionMemory::kMost; ++i) {
    const std::string key = std::to_string(i);
    memory.begin("alice", key, "x");
    memory.end("alice", key, kDone);
  }
  EXPECT_TRUE(is_first(memory.begin("alice", "oldest", "x")));
  EXPECT_TRUE(std::holds_alternative<ActionMemory::UnderWay>(memory.begin("alice", "under way", "x")));
}

} // namespace
} // namespace oncekey
