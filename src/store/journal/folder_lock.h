// FolderLock: one process at a time has an embedded store. The lock is RocksDB's file LOCK, which the kernel gives free
// when its process ends.
#pragma once

#include <oncekey/result.h>

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// RocksDB makes it at the first opening, before it changes other files of the store, and leaves it. It is in no backup:
// a backup's folder that has it was opened.
inline constexpr std::string_view kLockFile = "LOCK";

// The process that has the store open; nothing if none has, or there is no store.
std::optional<pid_t> process_with_journal(const std::string& folder);

// Keeps gateways from opening the store meanwhile. There is nothing to take in a backup that was never opened.
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

} // namespace oncekey
