// StoreClock: the time of a store that lives in one process, immune to steps of the wall clock.
//
// Leases and retention are stretches of time, so the clock has to run evenly; the wall clock does not (an operator
// sets it, NTP steps it). Within a boot of the machine the store's time therefore follows the time since boot, which
// also counts while the machine sleeps. A mark, saved with the records, ties the two together: on the same boot the
// clock goes on exactly from it, whatever the wall clock shows.
//
// How long the machine was off is known to the wall clock alone, and a wall clock may be wrong: a flat battery, a VM
// started before its time service. A clock that is ahead for one start would let every key expire. So the time between
// two boots counts only if the kernel called the wall clock synchronised when the mark was saved and does so again.
// Otherwise the clock goes on from the mark: keys then live longer by the time the machine was off, and never shorter.
//
// The kernel often says so only some seconds after the start. Time that was left out is made up for then, but only if
// nothing has been written since: a step ahead would take it from the lives of the records written in the meantime.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <atomic>
#include <cstdint>
#include <functional>

namespace oncekey {

// Where time comes from. The operating system's by default; tests turn the hands themselves.
struct ClockSources {
  std::function<Millis()> since_boot;
  std::function<Time()> wall;
  std::string boot_id; // empty if it cannot be known; then no boot counts as the same
  std::function<bool()> wall_is_right;

  // `trust_wall`: the wall clock counts as right whatever the kernel says.
  enum class TrustWall { when_synchronised, always };
  static ClockSources of_system(TrustWall trust = TrustWall::when_synchronised);
};

// A moment seen on all clocks.
struct ClockMark {
  std::string boot_id;
  Millis since_boot{};
  Time store_time{};
  std::optional<Time> wall{}; // if it was right
};

// What stands before a checksum at the end, if it is right. Nothing otherwise.
std::optional<std::string_view> checked_content(std::string_view bytes);

std::string encode_clock_mark(const ClockMark& mark);
Result<ClockMark> decode_clock_mark(std::string_view bytes);

// Any thread may ask.
class StoreClock {
 public:
  // `saved` is the newest mark of the store, nothing on first use.
  StoreClock(ClockSources sources, const std::optional<ClockMark>& saved);

  Time now() const { return Time{sources_.since_boot() + Millis{offset_.load(std::memory_order_relaxed)}}; }
  ClockMark mark() const;

  // Whether the time the machine was off is still left out.
  bool left_out() const { return before_.has_value(); }
  // Makes up for it, if the wall clock has become right. No record may be written between the caller's last look at
  // whether there are any and the return. One thread at a time. True if the clock was put forward.
  bool catch_up();
  // It is not made up for any more.
  void leave_out() { before_.reset(); }

 private:
  // Where the store's time would be now by the wall clock.
  std::optional<Time> by_wall(const ClockMark& saved) const;

  ClockSources sources_;
  std::atomic<std::int64_t> offset_; // of the store's time from the time since boot, in milliseconds; only grows
  std::optional<ClockMark> before_;  // the mark of an earlier boot, while the time since then is left out
};

} // namespace oncekey
