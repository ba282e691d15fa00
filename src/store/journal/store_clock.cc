#include "store/journal/store_clock.h"

#include "core/codec_parts.h"

#include <sys/timex.h>
#include <xxhash.h>

#include <algorithm>
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
  timex clock{};                        // no modes: only reads
  const int state = ::adjtimex(&clock); // -1 where asking is forbidden, as in some containers
  return state >= 0 && state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
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

std::optional<std::string_view> checked_content(std::string_view bytes) {
  std::uint64_t checksum;
  if (bytes.size() < sizeof checksum) return std::nullopt;
  const std::string_view content = bytes.substr(0, bytes.size() - sizeof checksum);
  std::memcpy(&checksum, bytes.data() + content.size(), sizeof checksum);
  if (XXH3_64bits(content.data(), content.size()) != checksum) return std::nullopt;
  return content;
}

// since_boot:i64 store_time:i64 wall:i64 (0 if it was not right) boot_id:the rest up to the checksum:u64,
// little-endian.
std::string encode_clock_mark(const ClockMark& mark) {
  std::string bytes;
  codec::field(bytes, std::int64_t{mark.since_boot.count()});
  codec::field(bytes, mark.store_time);
  codec::field(bytes, mark.wall.value_or(Time{}));
  bytes += mark.boot_id;
  codec::put_checksum(bytes, 0);
  return bytes;
}

Result<ClockMark> decode_clock_mark(std::string_view bytes) {
  constexpr std::size_t kTimesBytes = 3 * sizeof(std::int64_t);
  if (bytes.size() < kTimesBytes + sizeof(std::uint64_t)) return corrupt("the store's clock mark is cut short");
  const std::optional<std::string_view> content = checked_content(bytes);
  if (!content) return corrupt("the store's clock mark fails its checksum");
  codec::Cursor times(*content);
  std::int64_t since_boot = 0;
  Time store_time, wall;
  codec::each(times, since_boot, store_time, wall);
  return ClockMark{std::string(content->substr(kTimesBytes)), Millis{since_boot}, store_time,
                   wall == Time{} ? std::nullopt : std::optional(wall)};
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
