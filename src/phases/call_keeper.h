// CallKeeper: renews the leases of operations during their foreign calls.
//
// One thread for each runner, started with the first call. A call that ends within a third of a lease costs a lock, no
// statement, and hardly ever a switch to the thread. A call that hangs is renewed for `call_max`; then its lease runs
// out.
#pragma once

#include "phases/engine.h"

#include <oncekey/record.h>

#include <chrono>
#include <list>
#include <thread>

namespace oncekey::phases {

class CallKeeper {
 public:
  CallKeeper(Engine& engine, Millis lease, Millis call_max);
  ~CallKeeper();
  CallKeeper(const CallKeeper&) = delete;
  CallKeeper& operator=(const CallKeeper&) = delete;

  // Renews the lease for as long as this object lives: while the call runs.
  class Watch {
   public:
    Watch(CallKeeper& keeper, const RecordId& id, std::int64_t fence);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    friend class CallKeeper;
    CallKeeper& keeper_;
    const RecordId id_;
    const std::int64_t fence_;
    std::chrono::steady_clock::time_point renew_at_;
    const std::chrono::steady_clock::time_point stop_at_;
    std::list<Watch*>::iterator place_;
  };

 private:
  void work();
  void renew(const RecordId& id, std::int64_t fence);

  Engine& engine_;
  const Millis lease_;
  const Millis call_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Watch*> watches_;
  std::atomic<bool> stopping_ = false;
  bool idle_ = false; // the thread sleeps until a call begins
  std::thread thread_;
};

} // namespace oncekey::phases
