// Later: runs things after a while, on a thread of its own. For the rare second try of a call, not for the hot path.
#pragma once

#include <oncekey/time.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace oncekey {

class Later {
 public:
  Later();
  ~Later();
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  // What has not run by now never does, and nothing runs when this has returned.
  void stop();
  void after(Millis delay, std::function<void()> run);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> due_;
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace oncekey
