// slots: where in a cluster a key lives, and how records are spread.
//
// A script may touch keys of one slot only, and each call needs its record and a marker that tells whether the server
// has forgotten. So records are spread over partitions: all keys of a partition carry the same hash tag and share a
// slot, and each partition has a marker of its own. A single server has one partition, since it forgets as a whole.
#pragma once

#include "base/crypto.h"
#include "core/rate_keeper.h"
#include "redis/reply.h"

#include <oncekey/record.h>

namespace oncekey::redis {

inline constexpr std::uint16_t kSlots = 16384;
// Enough that a cluster of a hundred primaries is loaded evenly; few enough that all markers are written within a
// second.
inline constexpr std::uint32_t kClusterPartitions = 1024;

// CRC-16/XMODEM, as Redis Cluster uses it.
std::uint16_t crc16(std::string_view bytes);
// The slot of a key: of what stands between the first { and the next }, if that is something.
std::uint16_t slot_of(std::string_view key);

// The names of all keys of a store. What is named here is a format: it must stay as it is.
class KeyNames {
 public:
  KeyNames(std::string prefix, std::uint32_t partitions);

  std::uint32_t partitions() const { return static_cast<std::uint32_t>(stems_.size()); }
  std::uint32_t partition_of(const RecordId& id) const;
  std::uint16_t slot(std::uint32_t partition) const { return slot_of(stems_[partition]); }

  std::string record(const RecordId& id) const { return key(partition_of(id), "", hex_encode(id.bytes)); }
  std::string marker(std::uint32_t partition) const { return key(partition, "marker"); }
  // A job, its message, and what finds jobs (scripts.cc).
  std::string job(const RecordId& id) const { return key(partition_of(id), "job:", hex_encode(id.bytes)); }
  std::string message(const RecordId& id) const { return key(partition_of(id), "message:", hex_encode(id.bytes)); }
  std::string jobs(std::uint32_t partition) const { return key(partition, "jobs"); }
  std::string job_counts(std::uint32_t partition) const { return key(partition, "job_counts"); }
  std::string job_expiry(std::uint32_t partition) const { return key(partition, "job_expiry"); }
  std::string due_jobs(std::uint32_t partition, std::string_view route) const { return key(partition, "due:", route); }
  std::string jobs_in_order(const RecordId& id) const {
    return key(partition_of(id), "order:", hex_encode(id.bytes).substr(48));
  }
  // The first id of a partition; no record has it.
  RecordId first_id_in(std::uint32_t partition) const;
  // Of a rate limit, beside the records of a partition.
  std::uint32_t partition_of(const RateBucketId& bucket) const { return partition_of(RecordId{bucket.bytes}); }
  std::string bucket(const RateBucketId& bucket) const {
    return key(partition_of(bucket), "rate:", hex_encode(bucket.bytes));
  }
  // What the whole store shares (its secret); lives where partition 0 does.
  std::string meta() const { return key(0, "meta"); }
  std::string gateways() const { return key(0, "gateways"); }
  // Where settled records are announced.
  std::string channel() const { return prefix_ + ":settled"; }
  // Patterns for SCAN that fit the records or jobs whose id begins with these hex digits.
  std::string records_pattern(std::string_view id_prefix) const;
  std::string jobs_pattern(std::string_view id_prefix) const;
  // Nothing if the key is not the name of a record or a job.
  std::optional<RecordId> id_of(std::string_view key) const;

 private:
  std::string key(std::uint32_t partition, std::string_view kind, std::string_view rest = {}) const;

  std::string prefix_;
  std::vector<std::string> stems_; // by partition: the prefix and the hash tag
};

struct SlotRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  Host primary;
  friend bool operator==(const SlotRange&, const SlotRange&) = default;
};
// The answer to CLUSTER SLOTS. A node that does not know its own address leaves it empty: it is the one that was asked.
Result<std::vector<SlotRange>> parse_slots(RedisReply reply, const Host& asked);

} // namespace oncekey::redis
