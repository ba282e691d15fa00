// examine: reads an embedded store that no process has open, as a start would and further, and changes nothing in it.
//
// Read are: the files `meta` and `secret`; every segment of the log, with all checksums and the chain of batches; every
// block of RocksDB's files; every record, job and message; the files of large bodies. Compared are: records with the
// indexes by time and by text, what is not settled with its entries, a backup with the checksums that it was made with.
#pragma once

#include "core/sealing.h"
#include "core/store_tools.h"

#include <oncekey/result.h>

#include <sys/types.h>

#include <optional>
#include <string>

namespace oncekey {

// The process that has the store open; nothing if none has, or there is no store.
std::optional<pid_t> process_with_journal(const std::string& folder);

// Keeps gateways from opening the store meanwhile: the lock of RocksDB. A backup that was never opened has no lock.
class FolderLock {
 public:
  // `conflict` if a process has the store open, `invalid` if there is no store.
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int file) : file_(file) {}
  int file_ = -1;
};

enum class Depth {
  numbers,   // what a start reads; sizes and counts, some of them estimates
  everything // each byte
};

struct ExamineOptions {
  Depth depth = Depth::everything;
  const Sealer* sealer = nullptr; // opens the secret where that is sealed
  TellProgress tell{};
};

// What is damaged is in the report. A fault means that it could not be read at all: `invalid` if there is no store,
// `conflict` if it was given up.
Result<StoreReport> examine_journal(const std::string& folder, const ExamineOptions& options);

} // namespace oncekey
