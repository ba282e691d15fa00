// SignalWatch: signals to the process, as calls on a loop.
#pragma once

#include "net/loop.h"

namespace oncekey {

// While it lives, `caught` is called on the loop's thread for each of these signals, instead of what they do otherwise.
// A signal has one watch at a time in a process.
class SignalWatch {
 public:
  SignalWatch(Loop& loop, std::vector<int> signals, std::function<void()> caught);
  ~SignalWatch();

 private:
  Task<void> watch();
  std::vector<int> signals_;
  std::function<void()> caught_;
  WatchedDescriptor bell_; // an eventfd that the signal handler rings
};

} // namespace oncekey
