#include "store/redis/slots.h"

#include <fmt/format.h>

namespace oncekey::redis {
namespace {

// The first number whose slot lies in each of `count` stretches of equal length: whatever the borders between nodes,
// each has as many partitions as its share of slots.
std::vector<std::string> make_tags(std::uint32_t count) {
  std::vector<std::string> tags(count);
  std::uint32_t missing = count;
  for (std::uint64_t number = 0; missing > 0; ++number) {
    std::string text = std::to_string(number);
    std::string& tag = tags[static_cast<std::size_t>(slot_of(text)) * count / kSlots];
    if (!tag.empty()) continue;
    tag = std::move(text);
    --missing;
  }
  return tags;
}

constexpr std::size_t kIdDigits = 64;

} // namespace

std::uint16_t crc16(std::string_view bytes) {
  std::uint32_t crc = 0;
  for (const char c : bytes) {
    crc ^= std::uint32_t{static_cast<std::uint8_t>(c)} << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return static_cast<std::uint16_t>(crc);
}

std::uint16_t slot_of(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return crc16(key) % kSlots;
}

KeyNames::KeyNames(std::string prefix, std::uint32_t partitions)
    : prefix_(std::move(prefix)), stems_(make_tags(partitions)) {
  for (std::string& stem : stems_) stem = fmt::format("{}:{{{}}}:", prefix_, stem);
}

std::uint32_t KeyNames::partition_of(const RecordId& id) const {
  // The first bytes, so that the beginning of an id tells its partition.
  return ((std::uint32_t{id.bytes[0]} << 8) | id.bytes[1]) * partitions() >> 16;
}

std::string KeyNames::key(std::uint32_t partition, std::string_view kind, std::string_view rest) const {
  std::string key;
  key.reserve(stems_[partition].size() + kind.size() + rest.size());
  return key.append(stems_[partition]).append(kind).append(rest);
}

RecordId KeyNames::first_id_in(std::uint32_t partition) const {
  const std::uint32_t first = ((partition << 16) + partitions() - 1) / partitions();
  RecordId id;
  id.bytes[0] = static_cast<std::uint8_t>(first >> 8);
  id.bytes[1] = static_cast<std::uint8_t>(first & 0xff);
  return id;
}

std::string KeyNames::records_pattern(std::string_view id_prefix) const {
  std::string pattern = fmt::format("{}:{{*}}:{}", prefix_, id_prefix);
  // A question mark for each digit that is not given: a star would fit markers too.
  pattern.append(id_prefix.size() < kIdDigits ? kIdDigits - id_prefix.size() : 0, '?');
  return pattern;
}
std::string KeyNames::jobs_pattern(std::string_view id_prefix) const {
  return fmt::format("{}:{{*}}:job:{}*", prefix_, id_prefix);
}

std::optional<RecordId> KeyNames::id_of(std::string_view key) const {
  if (key.size() < kIdDigits) return std::nullopt;
  const std::optional<RecordId> id = record_id_from_hex(key.substr(key.size() - kIdDigits));
  return id && (record(*id) == key || job(*id) == key) ? id : std::nullopt;
}

Result<std::vector<SlotRange>> parse_slots(RedisReply reply, const Host& asked) {
  const auto nonsense = [&] {
    return unavailable(fmt::format("Redis at {} gave no usable answer to CLUSTER SLOTS", to_string(asked)));
  };
  if (!reply.is_array()) return nonsense();
  std::vector<SlotRange> ranges;
  for (std::size_t i = 0; i < reply.size(); ++i) {
    const RedisReply entry = reply[i];
    const auto first = entry[0].integer();
    const auto last = entry[1].integer();
    const auto port = entry[2][1].integer();
    if (!first || !last || !port || *first < 0 || *last < *first || *last >= kSlots || *port < 1 || *port > 65535) {
      return nonsense();
    }
    const std::string_view name = entry[2][0].text();
    // A question mark stands for a host name that the node does not know: it cannot be reached.
    if (name == "?") continue;
    ranges.push_back({static_cast<std::uint16_t>(*first), static_cast<std::uint16_t>(*last),
                      Host{name.empty() ? asked.name : std::string(name), static_cast<std::uint16_t>(*port)}});
  }
  return ranges;
}

} // namespace oncekey::redis
