// concurrently: pieces of work that do not depend on each other, several at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace oncekey {

enum class GoOn { yes, no };

// Calls `work` with 0, 1, … count - 1, begun in this order, on the calling thread and up to `concurrency` - 1 others.
// No further one is begun after one has said no; those under way are waited for. `work` must not throw.
inline void concurrently(std::size_t concurrency, std::size_t count, const std::function<GoOn(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> over{false};
  const auto take_turns = [&] {
    while (!over) {
      const std::size_t i = next++;
      if (i >= count) return;
      if (work(i) == GoOn::no) over = true;
    }
  };
  std::vector<std::jthread> others; // joined at the end of this scope
  for (std::size_t i = 1; i < std::min(concurrency, count); ++i) others.emplace_back(take_turns);
  take_turns();
}

} // namespace oncekey
