// Dispatcher: brings calls to the servers that have their records, and their answers back.
//
// Calls come from any thread. On the loop's thread they are sorted by server and partition and sent in batches. A
// server that syncs before it answers pays a sync for every group of batches: there one group is under way at a time,
// and it leaves after the batch delay.
//
// A call that certainly did nothing is sent again until its deadline where that may help: its slot is on another node
// or on its way there, a failover is under way, the server has forgotten the script. A call that may have done
// something is never sent again here.
#pragma once

#include "redis/server_error.h"
#include "store/redis/script_call.h"
#include "store/redis/servers.h"
#include "store/redis/store_state.h"

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace oncekey::redis {

class Dispatcher {
 public:
  struct Options {
    Millis call_timeout{};
    bool count_ticks = false;    // with every batch; else only when asked to
    std::function<Time()> clock; // null for the servers'
  };
  // `look_again` is called when a marker says that an operator has changed the store.
  Dispatcher(Loop& loop, Servers& servers, StoreState& state, const KeyNames& names, Options options,
             std::function<void()> look_again);

  // From any thread.
  void submit(CallPtr call);

  // The rest on the loop's thread.
  Task<Status> load_script(std::shared_ptr<RedisConnection> connection);
  // Counts the marker of a partition up and compares it with what was seen before. A fault if the server did not
  // answer.
  Task<Status> tick(std::shared_ptr<RedisConnection> connection, std::uint32_t partition);
  // All partitions whose markers tick() has ever counted up.
  const std::set<std::uint32_t>& watched() const { return watched_; }
  void stop();

 private:
  // One write to a server: its batches, until the last of them is answered.
  struct Group {
    std::shared_ptr<Link> link;
    CallQueue<ScriptCall>::Batch ids; // without the calls
    MonotonicTime left_at{};
    std::size_t batches = 0;
  };
  using GroupPtr = std::shared_ptr<Group>;
  // A batch that waits for its reply.
  struct Sent {
    GroupPtr group;
    std::vector<CallPtr> calls;
    std::string generation;
    std::uint64_t turn = 0;
  };
  // What was seen of a partition's marker. `asked` and `seen` number the requests for a tick, in the order of sending.
  struct SeenTicks {
    std::uint64_t asked = 0;
    std::uint64_t seen = 0;
    std::string generation;
    std::uint64_t largest = 0; // of this generation
    std::uint64_t largest_of(std::string_view asked_for) const { return generation == asked_for ? largest : 0; }
  };

  void drain();
  void route(CallPtr call);
  // Answers it and those that share the answer; others of them are sent.
  void finish(CallPtr call, const Result<ScriptAnswer>& answer);
  void send_waiting(const std::shared_ptr<Link>& link);
  void gather(const std::shared_ptr<Link>& link, MonotonicTime until);
  Task<void> send_gathered(std::shared_ptr<Link> link, MonotonicTime at);
  void batch_is_done(Group& group);
  // Wakes the loop when this many calls are in the inbox, and not for each of them.
  void wake_at(std::size_t calls);
  // Answers some of them with a fault.
  template <class Condition>
  void refuse_if(std::vector<CallPtr>& calls, const Fault& fault, Condition condition);
  void send_group(const std::shared_ptr<Link>& link, MonotonicTime now);
  void send_batch(const GroupPtr& group, std::vector<CallPtr> calls);
  std::string batch_bytes(std::uint32_t partition, std::span<const CallPtr> calls, std::string_view generation,
                          bool count_tick) const;
  void answered(Sent& sent, Result<OwnedReply> reply);
  void take_reply(Sent& sent, RedisReply reply);
  void take_error(const Link& link, std::vector<CallPtr>& calls, const ServerError& error);
  void take_loss(Sent& sent, const LostMarker& marker);
  void saw_tick(std::uint32_t partition, std::uint64_t turn, const std::string& generation, std::uint64_t tick);
  // May calls that saw a different generation be sent again? If not, the reason.
  Status after_loss(std::uint32_t partition, const std::string& sent_with, const LostMarker& marker);
  void send_again(CallPtr call, const Fault& because);
  void send_later(CallPtr call, const Fault& because);
  Task<void> route_parked();

  Loop& loop_;
  Servers& servers_;
  StoreState& state_;
  const KeyNames& names_;
  const Options options_;
  const std::function<void()> look_again_;
  std::string record_script_sha_;
  std::string job_script_sha_;
  std::vector<SeenTicks> ticks_; // by partition
  std::set<std::uint32_t> watched_;

  std::mutex mutex_;
  std::vector<CallPtr> inbox_; // guarded by mutex_
  std::size_t wake_at_ = 1;    // guarded by mutex_
  bool stopped_ = false;       // guarded by mutex_

  std::vector<std::shared_ptr<Link>> touched_; // have new calls waiting
  std::vector<CallPtr> parked_;
  bool parked_wait_ = false; // route_parked() runs
};

} // namespace oncekey::redis
