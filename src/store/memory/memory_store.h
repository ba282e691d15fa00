// MemoryStore: records in this process alone, for tests and demonstrations. Keeps nothing over a restart and says so.
//
// Ids are spread over shards, each with its own lock; within a shard records are kept by bucket, and a bucket whose
// stretch of time is over is dropped whole. Everything is answered in the caller's thread, before the call returns.
#pragma once

#include "core/store.h"

namespace oncekey {

// A demonstration that grows beyond this wants a store on disk; with small bodies it is about half a gigabyte.
inline constexpr std::uint64_t kMemoryRecordsMax = 1'000'000;
// Bodies and headers of all responses together.
inline constexpr std::uint64_t kMemoryResponseBytesMax = std::uint64_t{1} << 30;

struct MemoryOptions {
  std::uint64_t records_max = kMemoryRecordsMax;
  std::uint64_t response_bytes_max = kMemoryResponseBytesMax;
  // Runs evenly, whatever happens to the wall clock. Tests turn it themselves.
  std::function<Time()> now = {};
};

std::unique_ptr<Store> make_memory_store(MemoryOptions options = {});

} // namespace oncekey
