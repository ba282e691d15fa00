// tuning: how RocksDB is set up for us, every number with its reason.
#pragma once

#include <rocksdb/options.h>

#include <cstddef>

namespace oncekey {

// Blocks, indexes and filters of all buckets share this. Replays are mostly of young keys, which are in memtables or
// here; the operating system's page cache stands behind it.
inline constexpr std::size_t kBlockCacheBytes = std::size_t{32} << 20;
// All memtables of all buckets together. With the cache it bounds what the store keeps in memory.
inline constexpr std::size_t kMemtablesBytesMax = std::size_t{64} << 20;
// One bucket's memtable: nearly all writes go to the newest bucket, so it may have half of the whole.
inline constexpr std::size_t kMemtableBytes = std::size_t{32} << 20;
// What start-up may have to replay; about half a second's work.
inline constexpr std::size_t kLogBytesMax = std::size_t{128} << 20;
// Buckets keep few and large files; this is far beyond need and far below the usual limit of descriptors.
inline constexpr int kOpenFilesMax = 256;

rocksdb::DBOptions database_options();
// For the buckets. The same object for all, since it carries the shared cache.
rocksdb::ColumnFamilyOptions bucket_options();

} // namespace oncekey
