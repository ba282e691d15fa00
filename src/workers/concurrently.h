// concurrently: independent pieces of work, several at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace oncekey {

enum class GoOn { yes, no };

// Starts a thread. Throws std::system_error when the machine has no more; tests pass a StartThread of their own.
struct StartThread {
  std::jthread operator()(const std::function<void()>& work) const { return std::jthread(work); }
};

// Starts `count` threads, or as many as the machine allows. Returns why there are fewer, or nothing.
template <class Start>
std::optional<std::string> start_threads(std::vector<std::jthread>& threads, std::size_t count,
                                         const std::function<void()>& work, const Start& start) {
  threads.reserve(threads.size() + count);
  try {
    for (std::size_t i = 0; i < count; ++i) threads.push_back(start(work));
  } catch (const std::system_error& error) {
    return std::string("no thread could be started: ") + error.what();
  }
  return std::nullopt;
}

// Calls `work`, which may throw: what it threw, as text, or nothing.
template <class Work>
std::optional<std::string> thrown_by(const Work& work,
                                     const char* strange = "an exception that is not a std::exception was thrown") {
  try {
    work();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return strange;
  }
}

// Calls `work` with 0, 1, … count - 1, begun in this order, on the calling thread and up to `concurrency` - 1 others.
// After a piece of work has returned GoOn::no, no further one is begun; those under way are waited for. `work` must not
// throw. If the machine allows fewer threads than wanted, fewer threads do all of the work.
template <class Start = StartThread>
void concurrently(std::size_t concurrency, std::size_t count, const std::function<GoOn(std::size_t)>& work,
                  const Start& start = {}) {
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
  const std::size_t wanted = std::min(concurrency, count);
  (void)start_threads(others, wanted == 0 ? 0 : wanted - 1, take_turns, start);
  take_turns();
}

} // namespace oncekey
