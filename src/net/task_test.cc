#include "net/task.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

namespace oncekey {
namespace {

using LoopTimer =
    asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Executor>;

Task<std::string> at_once(std::string text) { co_return text + "!"; }

Task<int> after_a_wait(LoopTimer& timer, int value) {
  timer.expires_after(std::chrono::seconds(0));
  co_await timer.async_wait(use_task);
  co_return value;
}

Task<void> thrower(LoopTimer* timer) {
  if (timer != nullptr) co_await after_a_wait(*timer, 0);
  throw std::runtime_error("no");
}

TEST(Task, RunsToItsEndWithoutAnEventLoopWhenItNeverWaits) {
  std::string got;
  const auto run = [&]() -> Task<void> { got = co_await at_once("here"); };
  spawn(run());
  EXPECT_EQ(got, "here!");
}

TEST(Task, GoesOnWhereItWaitedOnceTheOperationIsOver) {
  asio::io_context context;
  LoopTimer timer(context);
  int sum = 0;
  const auto run = [&]() -> Task<void> {
    for (int i = 1; i <= 3; ++i) sum += co_await after_a_wait(timer, i);
  };
  spawn(run());
  EXPECT_EQ(sum, 0);
  context.run();
  EXPECT_EQ(sum, 6);
}

TEST(Task, GivesTheResultsOfAnOperationBackAsATuple) {
  asio::io_context context;
  LoopTimer timer(context);
  error_code seen;
  const auto run = [&]() -> Task<void> {
    timer.expires_at(std::chrono::steady_clock::time_point::max());
    const auto [error] = co_await timer.async_wait(use_task);
    seen = error;
  };
  spawn(run());
  timer.cancel();
  context.run();
  EXPECT_EQ(seen, asio::error::operation_aborted);
}

TEST(Task, ThrowsWhereItIsAwaitedWhetherItWaitedOrNot) {
  asio::io_context context;
  LoopTimer timer(context);
  int caught = 0;
  const auto run = [&](LoopTimer* waits) -> Task<void> {
    try {
      co_await thrower(waits);
    } catch (const std::runtime_error&) {
      ++caught;
    }
  };
  spawn(run(nullptr));
  EXPECT_EQ(caught, 1);
  spawn(run(&timer));
  context.run();
  EXPECT_EQ(caught, 2);
}

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
    asio::io_context context;
    LoopTimer timer(context);
    const auto inner = [&](std::shared_ptr<int> held) -> Task<void> {
      timer.expires_at(std::chrono::steady_clock::time_point::max());
      co_await timer.async_wait(use_task);
      *held = 1;
    };
    const auto outer = [&](std::shared_ptr<int> held) -> Task<void> {
      co_await inner(held);
      *held = 2;
    };
    asio::post(context, [&, witness] { spawn(outer(witness)); });
    context.poll();
    EXPECT_GT(witness.use_count(), 1);
  }
  EXPECT_EQ(witness.use_count(), 1);
  EXPECT_EQ(*witness, 0);
}

} // namespace
} // namespace oncekey
