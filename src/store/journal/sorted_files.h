// SortedFiles: the cold store on RocksDB. What a segment has changed becomes one sorted file for each family, and all of
// these files, with the mark of how far the log is sealed, are taken up in one step. RocksDB's own log and memtable are
// never written.
#pragma once

#include "store/journal/journal.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace oncekey {

class SortedFiles final : public ColdStore {
 public:
  // The column family of such a family; null if that has been dropped, since everything in it has expired.
  using FamilyOf = std::function<rocksdb::ColumnFamilyHandle*(const Family& family)>;

  // Files are made in `folder`, which is on the database's disk. Left-overs there are removed. The database outlives
  // this object.
  static Result<std::unique_ptr<SortedFiles>> open(rocksdb::DB& db, rocksdb::Options options, std::string folder,
                                                   FamilyOf family_of);

  // How far the log was sealed when the database was opened.
  const LogEnd& sealed() const { return sealed_; }

  Status take(const YoungTable& changes, const LogEnd& sealed) override;

 private:
  SortedFiles(rocksdb::DB& db, rocksdb::Options options, std::string folder, FamilyOf family_of);
  Result<std::string> write_file(std::size_t number, const YoungTable& changes,
                                 const std::vector<const YoungTable::Entry*>& entries, const std::string& mark) const;

  rocksdb::DB& db_;
  const rocksdb::Options options_;
  const std::string folder_;
  const FamilyOf family_of_;
  LogEnd sealed_;
};

} // namespace oncekey
