// Later: runs things after a while, on a thread of its own. For the rare second try of a call, not for the hot path.
#pragma once

#include <oncekey/time.h>

#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace oncekey {

class Later {
 public:
  // What has not run by now never does, and nothing runs when this has returned.
  void stop() { thread_ = {}; }

  void after(Millis delay, std::function<void()> run) {
    {
      const std::lock_guard lock(mutex_);
      due_.emplace(Clock::now() + delay, std::move(run));
    }
    changed_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void run_due(const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "store-later");
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      if (due_.empty()) {
        changed_.wait(lock, stop, [this] { return !due_.empty(); });
        continue;
      }
      const auto first = due_.begin();
      if (const Clock::time_point when = first->first; Clock::now() < when) {
        changed_.wait_until(lock, stop, when, [&] { return due_.begin()->first < when; });
        continue;
      }
      const std::function<void()> now = std::move(first->second);
      due_.erase(first);
      lock.unlock();
      now();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multimap<Clock::time_point, std::function<void()>> due_;
  std::jthread thread_{[this](const std::stop_token& stop) { run_due(stop); }};
};

} // namespace oncekey
