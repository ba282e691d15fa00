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

TEST(Concurrently, NothingToDoIsDone) {
  concurrently(4, 0, [](std::size_t) {
    ADD_FAILURE();
    return GoOn::yes;
  });
}

} // namespace
} // namespace oncekey
