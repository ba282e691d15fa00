// SortedFiles: the cold store on RocksDB. What a segment has changed becomes one sorted file for each family, and all
// of these files, with the mark of how far the log is sealed, are taken up in one step. RocksDB's own log and memtable
// are never written.
#pragma once

#include "store/journal/segmented_log.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace oncekey {

// How far the log has gone to that database; all zero before the first segment.
Result<LogEnd> read_sealed_mark(rocksdb::DB& db);

class SortedFiles final : public ColdStore {
 public:
  // One entry of a file.
  struct Line {
    Line(std::string_view line_key, std::string_view line_value, bool is_erased = false);
    bool operator<(const Line& other) const { return front != other.front ? front < other.front : key < other.key; }

    std::uint64_t front; // the key's first bytes as a number in the same order: most keys differ there
    std::string_view key;
    std::string_view value;
    bool erased;
  };
  // The column family of such a family; null if everything in it has expired. It hears what is about to come there.
  using FamilyOf =
      std::function<Result<rocksdb::ColumnFamilyHandle*>(const Family& family, std::span<const Line> lines)>;

  // Entries that a sealed segment gets beside its own: indexes. None of their keys is in the segment.
  struct Derived {
    Family family;
    std::string key;
    std::string value;
  };
  using Derive = std::function<std::vector<Derived>(const YoungTable& changes, const LogEnd& sealed)>;

  // Files are made in `folder`, which is on the database's disk. Left-overs there are removed. The database outlives
  // this object.
  static Result<std::unique_ptr<SortedFiles>> open(rocksdb::DB& db, rocksdb::Options options, std::string folder,
                                                   FamilyOf family_of, Derive derive);

  // How far the log was sealed when the database was opened.
  const LogEnd& sealed() const { return sealed_; }

  Status take(const YoungTable& changes, const LogEnd& sealed) override;
  // While the lock is held, nothing is taken: column families may be dropped.
  [[nodiscard]] std::unique_lock<std::mutex> pin() { return std::unique_lock(taking_); }

 private:
  SortedFiles(rocksdb::DB& db, rocksdb::Options options, std::string folder, FamilyOf family_of, Derive derive);
  Status try_to_take(const YoungTable& changes, const LogEnd& sealed);
  Result<std::string> write_file(const std::string& name, std::vector<Line>& lines) const;

  rocksdb::DB& db_;
  const rocksdb::Options options_;
  const std::string folder_;
  const FamilyOf family_of_;
  const Derive derive_;
  LogEnd sealed_;
  std::uint64_t written_ = 0; // files, in this process
  std::mutex taking_;
};

} // namespace oncekey
