#include "store/rocksdb/watched_files.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
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

} // namespace

class WatchedFiles::File final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  File(std::unique_ptr<rocksdb::FSWritableFile>&& file, std::atomic<bool>& sync_failed)
      : FSWritableFileOwnerWrapper(std::move(file)), sync_failed_(sync_failed) {}

  IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    return noted(FSWritableFileOwnerWrapper::Sync(options, debug));
  }
  IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    return noted(FSWritableFileOwnerWrapper::Fsync(options, debug));
  }
  IOStatus RangeSync(std::uint64_t offset, std::uint64_t bytes, const rocksdb::IOOptions& options,
                     rocksdb::IODebugContext* debug) override {
    return noted(FSWritableFileOwnerWrapper::RangeSync(offset, bytes, options, debug));
  }

 private:
  IOStatus noted(IOStatus status) {
    if (!status.ok()) sync_failed_.store(true, std::memory_order_release);
    return status;
  }
  std::atomic<bool>& sync_failed_;
};

class WatchedFiles::Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(std::unique_ptr<rocksdb::FSDirectory>&& directory, std::atomic<bool>& sync_failed)
      : FSDirectoryWrapper(std::move(directory)), sync_failed_(sync_failed) {}

  IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    return noted(FSDirectoryWrapper::Fsync(options, debug));
  }
  IOStatus FsyncWithDirOptions(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& how) override {
    return noted(FSDirectoryWrapper::FsyncWithDirOptions(options, debug, how));
  }

 private:
  IOStatus noted(IOStatus status) {
    if (!status.ok()) sync_failed_.store(true, std::memory_order_release);
    return status;
  }
  std::atomic<bool>& sync_failed_;
};

IOStatus WatchedFiles::watch(IOStatus status, std::unique_ptr<rocksdb::FSWritableFile>* result) {
  if (!status.ok()) return recoverable(std::move(status));
  *result = std::make_unique<File>(std::move(*result), sync_failed_);
  return status;
}

IOStatus WatchedFiles::NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* result,
                                       rocksdb::IODebugContext* debug) {
  return watch(target()->NewWritableFile(name, options, result, debug), result);
}

IOStatus WatchedFiles::ReopenWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                          std::unique_ptr<rocksdb::FSWritableFile>* result,
                                          rocksdb::IODebugContext* debug) {
  return watch(target()->ReopenWritableFile(name, options, result, debug), result);
}

IOStatus WatchedFiles::ReuseWritableFile(const std::string& name, const std::string& old_name,
                                         const rocksdb::FileOptions& options,
                                         std::unique_ptr<rocksdb::FSWritableFile>* result,
                                         rocksdb::IODebugContext* debug) {
  return watch(target()->ReuseWritableFile(name, old_name, options, result, debug), result);
}

IOStatus WatchedFiles::NewDirectory(const std::string& name, const rocksdb::IOOptions& options,
                                    std::unique_ptr<rocksdb::FSDirectory>* result, rocksdb::IODebugContext* debug) {
  IOStatus status = target()->NewDirectory(name, options, result, debug);
  if (!status.ok()) return recoverable(std::move(status));
  *result = std::make_unique<Directory>(std::move(*result), sync_failed_);
  return status;
}

} // namespace oncekey
