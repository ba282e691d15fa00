#include "net/task.h"

#include "net/loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

namespace oncekey {
namespace {

Task<std::string> at_once(std::string text) { co_return text + "!"; }

Task<int> after_a_turn(Loop& loop, int value) {
  co_await loop.next_turn();
  co_return value;
}

Task<void> thrower(Loop* loop) {
  if (loop != nullptr) co_await loop->next_turn();
  throw std::runtime_error("no");
}

TEST(Task, RunsToItsEndWithoutAnEventLoopWhenItNeverWaits) {
  std::string got;
  const auto run = [&]() -> Task<void> { got = co_await at_once("here"); };
  spawn(run());
  EXPECT_EQ(got, "here!");
}

TEST(Task, GoesOnWhereItWaitedOnceTheWaitIsOver) {
  Loop loop;
  int sum = 0;
  const auto run = [&]() -> Task<void> {
    for (int i = 1; i <= 3; ++i) sum += co_await after_a_turn(loop, i);
  };
  spawn(run());
  EXPECT_EQ(sum, 0);
  loop.run_until([&] { return sum == 6; });
}

TEST(Task, ThrowsWhereItIsAwaitedWhetherItWaitedOrNot) {
  Loop loop;
  int caught = 0;
  const auto run = [&](Loop* waits) -> Task<void> {
    try {
      co_await thrower(waits);
    } catch (const std::runtime_error&) {
      ++caught;
    }
  };
  spawn(run(nullptr));
  EXPECT_EQ(caught, 1);
  spawn(run(&loop));
  loop.run_until([&] { return caught == 2; });
}

TEST(Task, TellsTheSpawnerOfAnExceptionThatEndsIt) {
  Loop loop;
  std::vector<std::string> told;
  const auto failed = [&](const std::exception& thrown) { told.emplace_back(thrown.what()); };
  spawn(thrower(nullptr), failed);
  spawn(thrower(&loop), failed);
  loop.run_until([&] { return told.size() == 2; });
  EXPECT_EQ(told, (std::vector<std::string>{"no", "no"}));
}

TEST(TaskDeathTest, EndsTheProcessWithAnExceptionThatHasNoHandler) { EXPECT_DEATH(spawn(thrower(nullptr)), "no"); }

TEST(Task, AwaitsAnyNumberOfOthersThatNeverWaitWithoutUsingUpTheStack) {
  std::size_t bytes = 0;
  const auto run = [&]() -> Task<void> {
    for (int i = 0; i < 100'000; ++i) bytes += (co_await at_once("")).size();
  };
  spawn(run());
  EXPECT_EQ(bytes, 100'000u);
}

TEST(Task, EndsWithTheLoopThatItWaitsFor) {
  const auto witness = std::make_shared<int>(0);
  {
    Loop loop;
    const auto inner = [&](std::shared_ptr<int> held) -> Task<void> {
      co_await sleep_until(loop, MonotonicTime::max());
      *held = 1;
    };
    const auto outer = [&](std::shared_ptr<int> held) -> Task<void> {
      co_await inner(held);
      *held = 2;
    };
    loop.post([&, witness] { spawn(outer(witness)); });
    loop.poll();
    EXPECT_GT(witness.use_count(), 1);
  }
  EXPECT_EQ(witness.use_count(), 1);
  EXPECT_EQ(*witness, 0);
}

} // namespace
} // namespace oncekey
