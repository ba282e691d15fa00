// ClosedStore: an embedded store that no process has open, opened for reading as a start would open it: the file
// `meta`, the secret, RocksDB's files, and the log with all checksums and the chain of batches. Nothing is changed.
#pragma once

#include "base/crypto.h"
#include "core/sealing.h"
#include "store/journal/meta.h"
#include "store/journal/store_findings.h"
#include "store/journal/young_table.h"

#include <rocksdb/db.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace oncekey {

struct ClosedStore {
  struct YoungEntry {
    Family family;
    std::string value;
    bool erased = false;
  };
  struct OpenFamily {
    Family family; // of the store's own for the default one
    std::string name;
    std::shared_ptr<rocksdb::ColumnFamilyHandle> handle;
  };

  // Fills all members. Null if so much is damaged that nothing further can be read: the findings say what.
  static std::unique_ptr<ClosedStore> open(const std::string& folder, const Sealer* sealer, StoreFindings& findings);

  using Young = std::unordered_map<std::string, YoungEntry>; // by key
  // What the log has, which counts instead of RocksDB's word.
  const Young& young_of(FamilyKind kind) const { return young[static_cast<std::size_t>(kind)]; }
  // Null if the log says nothing of that key.
  const YoungEntry* young_entry(FamilyKind kind, std::string_view key) const;

  std::string folder;
  StoreMeta meta;
  std::optional<KeyedHash> text_hash; // nothing if the secret cannot be read
  std::unique_ptr<rocksdb::DB> db;    // outlives the families' handles
  std::vector<OpenFamily> families;
  std::array<Young, 3> young; // one for each kind of family

 private:
  bool look_at_meta(const Sealer* sealer, StoreFindings& findings);
  bool open_database(StoreFindings& findings);
  bool look_at_log(StoreFindings& findings);
};

} // namespace oncekey
