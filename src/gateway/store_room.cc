#include "gateway/store_room.h"

#include <fmt/format.h>

#include <sys/statvfs.h>

#include <algorithm>
#include <system_error>

namespace oncekey {
namespace {

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;

std::int64_t left(std::uint64_t all, std::uint64_t used) {
  return static_cast<std::int64_t>(std::min(all, kUnlimited)) - static_cast<std::int64_t>(std::min(used, kUnlimited));
}

} // namespace

std::uint64_t disk_reserve(const Limits& limits, std::uint64_t disk_bytes) {
  if (limits.disk_reserve_bytes) return *limits.disk_reserve_bytes;
  const double part = limits.disk_reserve_part.value_or(0.05);
  const auto bytes = static_cast<std::uint64_t>(static_cast<double>(disk_bytes) * part);
  if (limits.disk_reserve_part) return bytes;
  return std::clamp<std::uint64_t>(bytes, 64u << 20, 1u << 30);
}

void StoreRoom::look(const Seen& seen) {
  const bool on_disk = seen.disk_bytes > 0;
  const std::uint64_t reserve = on_disk ? disk_reserve(limits_, seen.disk_bytes) : 0;
  const std::uint64_t by_setting = limits_.max_store_bytes > 0 ? limits_.max_store_bytes : kUnlimited;
  // Answers under way find a little room behind the last claim.
  const std::uint64_t for_bodies = by_setting == kUnlimited ? 0 : std::min<std::uint64_t>(by_setting / 64, 64u << 20);
  const std::int64_t left_by_setting = left(by_setting, seen.used);
  const std::int64_t left_by_disk = on_disk ? left(seen.disk_free, reserve) : static_cast<std::int64_t>(kUnlimited);
  const std::int64_t body_by_disk = on_disk ? left(seen.disk_free, reserve / 2) : static_cast<std::int64_t>(kUnlimited);
  took_.store(0, std::memory_order_relaxed);
  claims_end_in_.store(std::min(left_by_setting - static_cast<std::int64_t>(for_bodies), left_by_disk));
  bodies_end_in_.store(std::min(left_by_setting, body_by_disk));
  const std::uint64_t by_disk =
      on_disk ? seen.used + static_cast<std::uint64_t>(std::max<std::int64_t>(0, left_by_disk)) : kUnlimited;
  const std::uint64_t capacity = std::min(by_setting, by_disk);
  capacity_.store(capacity == kUnlimited ? 0 : capacity);
  used_.store(seen.used);
  disk_free_.store(seen.disk_free);
  disk_bytes_.store(seen.disk_bytes);
  reserve_.store(reserve);
}

bool StoreRoom::for_body(std::uint64_t bytes) const {
  const std::int64_t there = bodies_end_in_.load(std::memory_order_relaxed) - took_.load(std::memory_order_relaxed) -
                             set_aside_.load(std::memory_order_relaxed);
  return there > static_cast<std::int64_t>(bytes);
}

std::optional<std::string> StoreRoom::shortage() const {
  if (for_claim()) return std::nullopt;
  if (limits_.max_store_bytes > 0 && used_.load() + (limits_.max_store_bytes / 64) >= limits_.max_store_bytes) {
    return fmt::format("the store takes {} bytes and limits.max_store_bytes is {}", used_.load(),
                       limits_.max_store_bytes);
  }
  return fmt::format("{} bytes are free on the store's disk, and {} stay in reserve (limits.disk_reserve)",
                     disk_free_.load(), reserve_.load());
}

std::optional<StoreRoom::Seen> look_at_disk(const std::string& folder, std::uint64_t used) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  StoreRoom::Seen seen;
  seen.used = used;
  seen.disk_free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  seen.disk_bytes = std::uint64_t{disk.f_blocks} * disk.f_frsize;
  return seen;
}

} // namespace oncekey
