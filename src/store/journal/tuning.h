// tuning: how RocksDB is set up for us, every number with its reason.
#pragma once

#include "store/journal/known_ids.h"
#include "store/journal/text_index.h"
#include "store/journal/time_index.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace oncekey {

// Blocks and pieces of indexes of all buckets share this. Replays are mostly of young keys, which are in the journal's
// tables; the operating system's page cache stands behind it.
inline constexpr std::size_t kBlockCacheBytes = std::size_t{32} << 20;
// Buckets keep few and large files; this is far beyond need and far below the usual limit of descriptors.
inline constexpr int kOpenFilesMax = 256;
// Large, so that their number stays below that: a bucket of a hundred million keys has about forty.
inline constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 30;

// Which keys the filters have: those of records. KnownIds keeps most looks for new ids away from them; they tell which
// of a bucket's files has an old one. Entries of the indexes by time and by text are only scanned for, and would make
// the filters three times as large.
//
// RocksDB calls this a prefix extractor, and would let an iterator skip files by it: every iterator needs
// total_order_seek (passing_by() in database.h).
class FilteredKeys final : public rocksdb::SliceTransform {
 public:
  const char* Name() const override { return "oncekey.FilteredKeys"; }
  rocksdb::Slice Transform(const rocksdb::Slice& key) const override { return key; }
  bool InDomain(const rocksdb::Slice& key) const override {
    const std::string_view text = key.ToStringView();
    return !is_time_key(text) && !is_text_key(text) && !is_sealed_ids_key(text);
  }
};

inline rocksdb::CompressionType fastest_compression() {
  const std::vector<rocksdb::CompressionType> built_in = rocksdb::GetSupportedCompressions();
  const bool has_lz4 = std::find(built_in.begin(), built_in.end(), rocksdb::kLZ4Compression) != built_in.end();
  return has_lz4 ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;
}

inline rocksdb::DBOptions database_options() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.max_background_jobs = 2;
  options.max_open_files = kOpenFilesMax;
  // After a failure the store itself says when to go on.
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
  // The index in pieces, which are read when they are needed: whole, those of a bucket of many millions would not fit
  // into the cache. Filters and the indexes' top levels are in memory as long as their file is open: a first claim asks
  // every file in vain, and must not read a block for that.
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.cache_index_and_filter_blocks = false;
  // Sixteen bits a key: one file in two thousand reads a block for nothing. With some buckets of some files each, a
  // first claim asks about twenty: one in a hundred reads a block.
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(16));
  table.whole_key_filtering = false;
  table.format_version = 5;

  rocksdb::ColumnFamilyOptions options;
  options.prefix_extractor = std::make_shared<FilteredKeys>();
  options.target_file_size_base = kFileBytes;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  // Nothing is written to memtables: they stay empty.
  options.write_buffer_size = 64 << 10;
  options.arena_block_size = 4 << 10;
  // Ids are hashes: every file overlaps every other, and levelled compaction would rewrite a level for each file. A
  // bucket lives a few files' worth and is dropped; merging files of like size touches each record few times.
  options.compaction_style = rocksdb::kCompactionStyleUniversal;
  // Late: new keys are kept away from the files by KnownIds, and an old one is found by their filters.
  options.level0_file_num_compaction_trigger = 12;
  // The youngest files are merged soon: compressing them is work for nothing.
  options.compression_per_level = {rocksdb::kNoCompression, fastest_compression()};
  return options;
}

} // namespace oncekey
