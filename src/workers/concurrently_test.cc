#include "workers/concurrently.h"

#include <gtest/gtest.h>

#include <barrier>
#include <mutex>
#include <set>

namespace oncekey {
namespace {

TEST(Concurrently, DoesEveryPieceOnce) {
  for (const std::size_t concurrency : {0u, 1u, 3u, 100u}) {
    std::mutex mutex;
    std::multiset<std::size_t> done;
    concurrently(concurrency, 20, [&](std::size_t i) {
      const std::lock_guard lock(mutex);
      done.insert(i);
      return GoOn::yes;
    });
    EXPECT_EQ(done.size(), 20u);
    EXPECT_EQ(std::set(done.begin(), done.end()).size(), 20u);
  }
}

TEST(Concurrently, SeveralAreUnderWayAtATime) {
  std::barrier all_there(4);
  concurrently(4, 8, [&](std::size_t) {
    all_there.arrive_and_wait();
    return GoOn::yes;
  });
}

TEST(Concurrently, BeginsNothingAfterANo) {
  std::size_t begun = 0;
  concurrently(1, 20, [&](std::size_t i) {
    ++begun;
    return i == 4 ? GoOn::no : GoOn::yes;
  });
  EXPECT_EQ(begun, 5u);
}

// A machine that gives a few threads and then no more.
struct FewThreads {
  std::size_t& left;
  std::jthread operator()(const std::function<void()>& work) const {
    if (left == 0) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    --left;
    return std::jthread(work);
  }
};

TEST(Concurrently, WithoutThreadsEverythingIsDoneAllTheSame) {
  for (const std::size_t given : {0u, 2u}) {
    std::size_t left = given;
    std::atomic<int> done{0};
    concurrently(
        8, 20,
        [&](std::size_t) {
          ++done;
          return GoOn::yes;
        },
        FewThreads{left});
    EXPECT_EQ(done, 20);
  }
}

TEST(StartThreads, TellsWhyThereAreFewer) {
  std::size_t left = 1;
  std::vector<std::jthread> threads;
  const auto why = start_threads(
      threads, 3, [] {}, FewThreads{left});
  EXPECT_EQ(threads.size(), 1u);
  ASSERT_TRUE(why.has_value());
  EXPECT_NE(why->find("no thread could be started"), std::string::npos);
  EXPECT_FALSE(start_threads(
                   threads, 2, [] {}, StartThread{})
                   .has_value());
}

TEST(Concurrently, NothingToDoIsDone) {
  concurrently(4, 0, [](std::size_t) {
    ADD_FAILURE();
    return GoOn::yes;
  });
}

} // namespace
} // namespace oncekey
