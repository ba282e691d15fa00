// StoreClock: the time of a store that lives in one process, immune to steps of the wall clock.
//
// Leases and retention are stretches of time, so the clock has to run evenly; the wall clock does not (an operator
// sets it, NTP steps it). Within a boot of the machine the store's time therefore follows the time since boot, which
// also counts while the machine sleeps. A mark, saved with the records, ties the two together: on the same boot the
// clock goes on exactly from it, whatever the wall clock shows; after another boot it goes on from the wall clock,
// and never before the mark. It never goes backwards.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// Where time comes from. The operating system's by default; tests turn the hands themselves.
struct ClockSources {
  std::function<Millis()> since_boot;
  std::function<Time()> wall;
  std::string boot_id; // empty if it cannot be known; then no boot counts as the same

  static ClockSources of_system();
};

// A moment seen on both clocks.
struct ClockMark {
  std::string boot_id;
  Millis since_boot{};
  Time store_time{};
};

std::string encode_clock_mark(const ClockMark& mark);
Result<ClockMark> decode_clock_mark(std::string_view bytes);

// Any thread may ask.
class StoreClock {
 public:
  // `saved` is the newest mark of the store, nothing on first use.
  StoreClock(ClockSources sources, const std::optional<ClockMark>& saved);

  Time now() const { return base_time_ + (sources_.since_boot() - base_boot_); }
  ClockMark mark() const;

 private:
  ClockSources sources_;
  Millis base_boot_;
  Time base_time_;
};

} // namespace oncekey
