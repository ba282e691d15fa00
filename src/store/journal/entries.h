// Entries: what the store has under a key, wherever it is: the young ones in the journal, the old ones in RocksDB.
//
// A look at a key that may be new asks RocksDB first, without the lock, and then the journal's tables under the lock.
// If a segment was sealed in between, what RocksDB said may be old, and it is asked again.
#pragma once

#include "store/journal/buckets.h"
#include "store/journal/segmented_log.h"

#include <rocksdb/db.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_set>

namespace oncekey {

inline constexpr Family kStoreFamily{FamilyKind::store, {}};

// A key as it is while the lock is held.
struct KeyLook {
  std::unique_lock<std::mutex> lock; // the journal's
  std::optional<Family> family;      // nothing if there is no such key
  std::string_view value;
  std::uint64_t sequence = 0; // of the batch that says so, while that is young
  rocksdb::PinnableSlice cold{};
};

// Where a key is looked for first.
enum class Likely { young, cold };

class Entries {
 public:
  // All outlive this object.
  Entries(rocksdb::DB& db, Buckets& records, Buckets& jobs, SegmentedLog& journal)
      : db_(db), records_(records), jobs_(jobs), journal_(journal) {}

  SegmentedLog& journal() const { return journal_; }

  Status look(FamilyKind kind, std::string_view key, Likely likely, KeyLook& found) const {
    if (likely == Likely::young) {
      found.lock = journal_.lock();
      if (find_young(kind, key, found)) return ok_status();
      found.lock.unlock();
    }
    for (;;) {
      const std::uint64_t sealings = journal_.sealings();
      if (const Status read = find_cold(kind, key, found); !read) return read;
      found.lock = journal_.lock();
      if (find_young(kind, key, found) || sealings == journal_.sealings()) return ok_status();
      found.lock.unlock();
    }
  }

  // The same while the lock is held already.
  Status look_on(FamilyKind kind, std::string_view key, KeyLook& found) const {
    return find_young(kind, key, found) ? ok_status() : find_cold(kind, key, found);
  }

  // The value of a key of the store's own; nothing if there is none.
  Result<std::optional<std::string>> read(std::string_view key) const {
    KeyLook found;
    if (const Status read = look(FamilyKind::store, key, Likely::cold, found); !read) return read.fault();
    if (!found.family) return std::optional<std::string>();
    return std::optional(std::string(found.value));
  }

  // Visits the keys that begin with the prefix, each once, in no order. Without the lock.
  Status scan(FamilyKind kind, std::string_view prefix, std::string_view what_failed, const Visit& visit) const {
    SegmentedLog::Young young;
    {
      const std::unique_lock lock = journal_.lock();
      young = journal_.young(kind, prefix);
    }
    std::unordered_set<std::string_view> seen;
    for (const SegmentedLog::Young::Entry& entry : young.entries) {
      seen.insert(entry.key);
      if (entry.erased) continue;
      const Result<bool> more = visit(entry.key, entry.value);
      if (!more) return more.fault();
      if (!*more) return ok_status();
    }
    const auto visit_old = [&](std::string_view key, std::string_view value) -> Result<bool> {
      if (seen.contains(key)) return true;
      return visit(key, value);
    };
    if (kind != FamilyKind::store) return buckets_of(kind).scan_all(prefix, what_failed, visit_old);
    const Result<bool> more = oncekey::scan(db_, db_.DefaultColumnFamily(), prefix, what_failed, visit_old);
    return more ? ok_status() : Status(more.fault());
  }

 private:
  const Buckets& buckets_of(FamilyKind kind) const { return kind == FamilyKind::jobs ? jobs_ : records_; }

  bool find_young(FamilyKind kind, std::string_view key, KeyLook& found) const {
    const std::optional<SegmentedLog::Found> young = journal_.find(kind, key);
    if (!young) return false;
    found.family.reset();
    if (!young->erased) found.family = young->family;
    found.value = young->value;
    found.sequence = young->sequence;
    return true;
  }
  Status find_cold(FamilyKind kind, std::string_view key, KeyLook& found) const {
    found.family.reset();
    found.sequence = 0;
    found.cold.Reset();
    if (kind == FamilyKind::store) {
      const rocksdb::Status read = db_.Get({}, db_.DefaultColumnFamily(), slice_of(key), &found.cold);
      if (!read.ok() && !read.IsNotFound()) return fault_of(read, "a part of the store could not be read");
      if (read.ok()) found.family = kStoreFamily;
    } else {
      const Result<std::optional<BucketId>> bucket = buckets_of(kind).get(slice_of(key), found.cold);
      if (!bucket) return bucket.fault();
      if (*bucket) found.family = Family{kind, **bucket};
    }
    found.value = found.cold.ToStringView();
    return ok_status();
  }

  rocksdb::DB& db_;
  Buckets& records_;
  Buckets& jobs_;
  SegmentedLog& journal_;
};

} // namespace oncekey
