#include "store/rocksdb/store_clock.h"

#include <sys/timex.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

namespace oncekey {
namespace {

Millis read_clock(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return std::chrono::duration_cast<Millis>(std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec});
}

bool kernel_says_synchronised() {
  timex clock{}; // no modes: only reads
  return ::adjtimex(&clock) != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
}

} // namespace

ClockSources ClockSources::of_system(TrustWall trust) {
  ClockSources sources;
  sources.since_boot = [] { return read_clock(CLOCK_BOOTTIME); };
  sources.wall = [] { return Time{read_clock(CLOCK_REALTIME)}; };
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, sources.boot_id);
  sources.wall_is_right = [trust] { return trust == TrustWall::always || kernel_says_synchronised(); };
  return sources;
}

// since_boot:i64 store_time:i64 wall:i64 (0 if it was not right) boot_id:the rest up to the checksum:u64,
// little-endian.
std::string encode_clock_mark(const ClockMark& mark) {
  const std::int64_t times[3] = {mark.since_boot.count(), mark.store_time.time_since_epoch().count(),
                                 mark.wall ? mark.wall->time_since_epoch().count() : 0};
  std::string bytes(sizeof times, '\0');
  std::memcpy(bytes.data(), times, sizeof times);
  bytes += mark.boot_id;
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  bytes.resize(bytes.size() + sizeof checksum);
  std::memcpy(bytes.data() + bytes.size() - sizeof checksum, &checksum, sizeof checksum);
  return bytes;
}

Result<ClockMark> decode_clock_mark(std::string_view bytes) {
  std::int64_t times[3];
  std::uint64_t checksum;
  if (bytes.size() < sizeof times + sizeof checksum) return corrupt("the store's clock mark is cut short");
  const std::size_t content = bytes.size() - sizeof checksum;
  std::memcpy(&checksum, bytes.data() + content, sizeof checksum);
  if (XXH3_64bits(bytes.data(), content) != checksum) return corrupt("the store's clock mark fails its checksum");
  std::memcpy(times, bytes.data(), sizeof times);
  ClockMark mark{std::string(bytes.substr(sizeof times, content - sizeof times)), Millis{times[0]},
                 Time{Millis{times[1]}}, std::nullopt};
  if (times[2] != 0) mark.wall = Time{Millis{times[2]}};
  return mark;
}

StoreClock::StoreClock(ClockSources sources, const std::optional<ClockMark>& saved) : sources_(std::move(sources)) {
  const Millis since_boot = sources_.since_boot();
  Time now = sources_.wall(); // on first use: there is nothing yet that could expire
  if (saved) {
    // A virtual machine put back to an earlier snapshot has the same boot id and an earlier time since boot.
    const bool same_boot =
        !sources_.boot_id.empty() && saved->boot_id == sources_.boot_id && saved->since_boot <= since_boot;
    now = saved->store_time;
    if (same_boot) {
      now += since_boot - saved->since_boot;
    } else if (saved->wall) {
      const std::optional<Time> right = by_wall(*saved);
      if (right) now = std::max(now, *right);
      if (!right) before_ = saved;
    }
  }
  offset_ = (now.time_since_epoch() - since_boot).count();
}

std::optional<Time> StoreClock::by_wall(const ClockMark& saved) const {
  if (!sources_.wall_is_right()) return std::nullopt;
  return saved.store_time + (sources_.wall() - *saved.wall);
}

bool StoreClock::catch_up() {
  if (!before_) return false;
  const std::optional<Time> right = by_wall(*before_);
  if (!right) return false;
  before_.reset();
  const std::int64_t offset = (right->time_since_epoch() - sources_.since_boot()).count();
  if (offset <= offset_.load(std::memory_order_relaxed)) return false;
  offset_.store(offset, std::memory_order_relaxed);
  return true;
}

ClockMark StoreClock::mark() const {
  const Millis since_boot = sources_.since_boot();
  ClockMark mark{sources_.boot_id, since_boot, Time{since_boot + Millis{offset_.load(std::memory_order_relaxed)}},
                 std::nullopt};
  if (sources_.wall_is_right()) mark.wall = sources_.wall();
  return mark;
}

} // namespace oncekey
