// SideThread: does what may wait for a disk, so that the operators' loop does not. That loop also answers the probes of
// service managers, which end a process that does not answer.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace oncekey {

class SideThread {
 public:
  SideThread() : thread_([this] { run(); }) {}
  // Does what it was given before it ends.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Calls `work` on the thread, after what it was given before. From any thread; returns at once.
  void give(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_; // guards the next two
  std::deque<std::function<void()>> work_;
  bool ending_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

} // namespace oncekey
