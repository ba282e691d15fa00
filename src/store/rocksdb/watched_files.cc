#include "store/rocksdb/watched_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace oncekey {
namespace {

using rocksdb::IOStatus;

// RocksDB keeps of errno only its text.
bool is_shortage(const IOStatus& status) {
  static constexpr std::array kShortages = {EMFILE, ENFILE, ENOMEM};
  if (!status.IsIOError()) return false;
  const std::string text = status.ToString();
  for (const int code : kShortages) {
    if (text.find(std::strerror(code)) != std::string::npos) return true;
  }
  return false;
}

IOStatus recoverable(IOStatus status) {
  if (!is_shortage(status)) return status;
  return IOStatus::NoSpace(status.ToString());
}

// The answer of a sync.
IOStatus noted(IOStatus status, std::atomic<bool>& sync_failed) {
  if (!status.ok()) sync_failed.store(true, std::memory_order_release);
  return status;
}

} // namespace

class WatchedFiles::File : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  File(std::unique_ptr<rocksdb::FSWritableFile>&& file, std::atomic<bool>& sync_failed)
      : FSWritableFileOwnerWrapper(std::move(file)), sync_failed_(sync_failed) {}

  IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    return noted(FSWritableFileOwnerWrapper::Sync(options, debug), sync_failed_);
  }
  IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    return noted(FSWritableFileOwnerWrapper::Fsync(options, debug), sync_failed_);
  }
  IOStatus RangeSync(std::uint64_t offset, std::uint64_t bytes, const rocksdb::IOOptions& options,
                     rocksdb::IODebugContext* debug) override {
    return noted(FSWritableFileOwnerWrapper::RangeSync(offset, bytes, options, debug), sync_failed_);
  }

 private:
  std::atomic<bool>& sync_failed_;
};

// The store looks for room before each batch. Between the look and the write another program may take the room, or a
// flush beside it. The blocks of the write are allocated first, so that it finds them or waits, and never fails
// halfway.
class WatchedFiles::LogFile final : public File {
 public:
  LogFile(std::unique_ptr<rocksdb::FSWritableFile>&& file, std::atomic<bool>& sync_failed,
          const std::atomic<bool>& stopped)
      : File(std::move(file), sync_failed), stopped_(stopped) {}

  IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                  rocksdb::IODebugContext* debug) override {
    wait_for_room(data.size(), options, debug);
    return counted(data.size(), File::Append(data, options, debug));
  }
  IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                  const rocksdb::DataVerificationInfo& verification, rocksdb::IODebugContext* debug) override {
    wait_for_room(data.size(), options, debug);
    return counted(data.size(), File::Append(data, options, verification, debug));
  }

 private:
  // One call for so many bytes of log.
  static constexpr std::uint64_t kStepBytes = 1u << 20;
  static constexpr std::chrono::milliseconds kPause{50};

  void wait_for_room(std::uint64_t bytes, const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) {
    while (written_ + bytes > allocated_ && !stopped_.load(std::memory_order_acquire)) {
      for (const std::uint64_t length : {std::max(bytes, kStepBytes), bytes}) {
        const IOStatus allocated = target()->Allocate(written_, length, options, debug);
        if (allocated.IsNoSpace()) continue;
        // A file system that cannot allocate ahead says so: then the write will tell.
        allocated_ = written_ + length;
        return;
      }
      std::this_thread::sleep_for(kPause);
    }
  }
  IOStatus counted(std::uint64_t bytes, IOStatus status) {
    if (status.ok()) written_ += bytes;
    return status;
  }

  const std::atomic<bool>& stopped_;
  std::uint64_t written_ = 0;
  std::uint64_t allocated_ = 0;
};

class WatchedFiles::Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(std::unique_ptr<rocksdb::FSDirectory>&& directory, std::atomic<bool>& sync_failed)
      : FSDirectoryWrapper(std::move(directory)), sync_failed_(sync_failed) {}

  IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    return noted(FSDirectoryWrapper::Fsync(options, debug), sync_failed_);
  }
  IOStatus FsyncWithDirOptions(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& how) override {
    return noted(FSDirectoryWrapper::FsyncWithDirOptions(options, debug, how), sync_failed_);
  }

 private:
  std::atomic<bool>& sync_failed_;
};

IOStatus WatchedFiles::watch(IOStatus status, const std::string& name, Written* result) {
  if (!status.ok()) return recoverable(std::move(status));
  if (name.ends_with(".log")) {
    *result = std::make_unique<LogFile>(std::move(*result), sync_failed_, stopped_);
  } else {
    *result = std::make_unique<File>(std::move(*result), sync_failed_);
  }
  return status;
}

IOStatus WatchedFiles::NewDirectory(const std::string& name, const rocksdb::IOOptions& options,
                                    std::unique_ptr<rocksdb::FSDirectory>* result, rocksdb::IODebugContext* debug) {
  IOStatus status = target()->NewDirectory(name, options, result, debug);
  if (!status.ok()) return recoverable(std::move(status));
  *result = std::make_unique<Directory>(std::move(*result), sync_failed_);
  return status;
}

} // namespace oncekey
