#include "store/rocksdb/store_clock.h"

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

} // namespace

ClockSources ClockSources::of_system() {
  ClockSources sources;
  sources.since_boot = [] { return read_clock(CLOCK_BOOTTIME); };
  sources.wall = [] { return Time{read_clock(CLOCK_REALTIME)}; };
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, sources.boot_id);
  return sources;
}

// since_boot:i64 store_time:i64 boot_id:the rest up to the checksum:u64, little-endian.
std::string encode_clock_mark(const ClockMark& mark) {
  const std::int64_t times[2] = {mark.since_boot.count(), mark.store_time.time_since_epoch().count()};
  std::string bytes(sizeof times, '\0');
  std::memcpy(bytes.data(), times, sizeof times);
  bytes += mark.boot_id;
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  bytes.resize(bytes.size() + sizeof checksum);
  std::memcpy(bytes.data() + bytes.size() - sizeof checksum, &checksum, sizeof checksum);
  return bytes;
}

Result<ClockMark> decode_clock_mark(std::string_view bytes) {
  std::int64_t times[2];
  std::uint64_t checksum;
  if (bytes.size() < sizeof times + sizeof checksum) return corrupt("the store's clock mark is cut short");
  const std::size_t content = bytes.size() - sizeof checksum;
  std::memcpy(&checksum, bytes.data() + content, sizeof checksum);
  if (XXH3_64bits(bytes.data(), content) != checksum) return corrupt("the store's clock mark fails its checksum");
  std::memcpy(times, bytes.data(), sizeof times);
  return ClockMark{std::string(bytes.substr(sizeof times, content - sizeof times)), Millis{times[0]},
                   Time{Millis{times[1]}}};
}

StoreClock::StoreClock(ClockSources sources, const std::optional<ClockMark>& saved)
    : sources_(std::move(sources)), base_boot_(sources_.since_boot()), base_time_(sources_.wall()) {
  if (!saved) return;
  // A virtual machine put back to an earlier snapshot has the same boot id and an earlier time since boot.
  const bool same_boot =
      !sources_.boot_id.empty() && saved->boot_id == sources_.boot_id && saved->since_boot <= base_boot_;
  base_time_ =
      same_boot ? saved->store_time + (base_boot_ - saved->since_boot) : std::max(saved->store_time, base_time_);
}

ClockMark StoreClock::mark() const {
  const Millis since_boot = sources_.since_boot();
  return {sources_.boot_id, since_boot, base_time_ + (since_boot - base_boot_)};
}

} // namespace oncekey
