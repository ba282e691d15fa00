// tuning: how RocksDB is set up for us, every number with its reason.
#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <cstddef>
#include <vector>

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

inline rocksdb::CompressionType fastest_compression() {
  const std::vector<rocksdb::CompressionType> built_in = rocksdb::GetSupportedCompressions();
  const bool has_lz4 = std::find(built_in.begin(), built_in.end(), rocksdb::kLZ4Compression) != built_in.end();
  return has_lz4 ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;
}

inline rocksdb::DBOptions database_options() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.max_background_jobs = 2;
  // There is one writer: the memtable needs no care for a second.
  options.allow_concurrent_memtable_write = false;
  options.max_open_files = kOpenFilesMax;
  options.db_write_buffer_size = kMemtablesBytesMax;
  options.max_total_wal_size = kLogBytesMax;

  // A log that ends in a torn write is what a power cut leaves: that write was never acknowledged and is dropped.
  // Damage anywhere else would mean to forget acknowledged writes, and a forgotten key is executed twice: this mode
  // then refuses to open, where RocksDB's default (point in time) would quietly go back to before the damage. The
  // manifest remembers which closed logs there are and how long, so that a lost one is noticed as well.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.track_and_verify_wals_in_manifest = true;
  // After a failed sync the next one may lie (the kernel has dropped the dirty pages): never try again.
  options.max_bgerror_resume_count = 0;

  // Files of a dropped bucket are deleted in the background, not by the reader that let go of it last.
  options.avoid_unnecessary_blocking_io = true;
  // These statistics are not read.
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;

  // RocksDB's own log: warnings only, a few megabytes at most.
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  options.max_log_file_size = 1 << 20;
  options.keep_log_file_num = 3;
  return options;
}

// For the buckets. The same object for all, since it carries the shared cache.
inline rocksdb::ColumnFamilyOptions bucket_options() {
  rocksdb::BlockBasedTableOptions table;
  // Four shards: many small ones could not hold a large block, and few threads meet here.
  table.block_cache = rocksdb::NewLRUCache(kBlockCacheBytes, /*num_shard_bits=*/2);
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  // Filters and indexes in pieces: whole, those of a bucket of many millions would not fit into the cache.
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.partition_filters = true;
  // Ten bits a key: one lookup in a hundred reads a block for nothing. A first claim asks every bucket in vain.
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.whole_key_filtering = true;
  table.format_version = 5;

  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.write_buffer_size = kMemtableBytes;
  options.max_write_buffer_number = 3;
  // Several buckets are open and most are quiet: small arena blocks keep a quiet one small.
  options.arena_block_size = 64 << 10;
  options.memtable_prefix_bloom_size_ratio = 0.01;
  options.memtable_whole_key_filtering = true;
  // Ids are hashes: every file overlaps every other, and levelled compaction would rewrite a level for each flush. A
  // bucket lives a few flushes' worth and is dropped; merging files of like size touches each record few times.
  options.compaction_style = rocksdb::kCompactionStyleUniversal;
  // The youngest files are merged soon: compressing them is work for nothing.
  options.compression_per_level = {rocksdb::kNoCompression, fastest_compression()};
  // A memtable's list is searched from where the last id with the same first byte went, a few levels down.
  options.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(1));
  return options;
}

} // namespace oncekey
