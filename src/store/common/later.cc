#include "store/common/later.h"

#include <pthread.h>

#include <utility>

namespace oncekey {

Later::Later() : thread_([this] { run(); }) {}

Later::~Later() { stop(); }

void Later::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Later::after(Millis delay, std::function<void()> run) {
  {
    const std::lock_guard lock(mutex_);
    due_.emplace(std::chrono::steady_clock::now() + delay, std::move(run));
  }
  changed_.notify_one();
}

void Later::run() {
  pthread_setname_np(pthread_self(), "store-later");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = due_.begin();
    if (std::chrono::steady_clock::now() < first->first) {
      const auto when = first->first;
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

} // namespace oncekey
