// Later: runs things after a while, on a thread of its own. For the rare second try of a call, not for the hot path.
#pragma once

#include <oncekey/time.h>

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace oncekey {

class Later {
 public:
  Later() : thread_([this] { run_due(); }) {}
  ~Later() { stop(); }
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  // What has not run by now never does, and nothing runs when this has returned.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  void after(Millis delay, std::function<void()> run) {
    {
      const std::lock_guard lock(mutex_);
      due_.emplace(std::chrono::steady_clock::now() + delay, std::move(run));
    }
    changed_.notify_one();
  }

 private:
  void run_due() {
    pthread_setname_np(pthread_self(), "store-later");
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (due_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const auto first = due_.begin();
      if (const auto when = first->first; std::chrono::steady_clock::now() < when) {
        changed_.wait_until(lock, when);
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
  std::condition_variable changed_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> due_;
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace oncekey
