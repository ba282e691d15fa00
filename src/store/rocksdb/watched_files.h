// WatchedFiles: the files RocksDB works on, with an eye on what kind of failure happened.
//
// Two kinds must be told apart. A failed sync leaves unknown what is on disk: the kernel may have dropped the pages,
// and a second sync may report success for them. After that the process must not acknowledge anything. A file that
// could not be created or extended (disk full, out of descriptors or memory) is harmless: nothing was acknowledged, and
// the same step can be done again later. RocksDB recovers by itself from a full disk only, and takes a lack of
// descriptors for fatal, so that the latter is reported to it as the former.
#pragma once

#include <rocksdb/file_system.h>

#include <atomic>
#include <memory>
#include <string>

namespace oncekey {

class WatchedFiles final : public rocksdb::FileSystemWrapper {
 public:
  explicit WatchedFiles(std::shared_ptr<rocksdb::FileSystem> files) : FileSystemWrapper(std::move(files)) {}
  const char* Name() const override { return "WatchedFiles"; }

  // A log that cannot be extended waits until the disk has room: RocksDB does not get over an error there. Not after
  // this.
  void stop_waiting() { stopped_.store(true, std::memory_order_release); }

  // Some sync has failed since the store was opened. Never false again.
  bool sync_failed() const { return sync_failed_.load(std::memory_order_acquire); }

  using Written = std::unique_ptr<rocksdb::FSWritableFile>;
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options, Written* result,
                                    rocksdb::IODebugContext* debug) override {
    return watch(target()->NewWritableFile(name, options, result, debug), name, result);
  }
  rocksdb::IOStatus ReopenWritableFile(const std::string& name, const rocksdb::FileOptions& options, Written* result,
                                       rocksdb::IODebugContext* debug) override {
    return watch(target()->ReopenWritableFile(name, options, result, debug), name, result);
  }
  rocksdb::IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name,
                                      const rocksdb::FileOptions& options, Written* result,
                                      rocksdb::IODebugContext* debug) override {
    return watch(target()->ReuseWritableFile(name, old_name, options, result, debug), name, result);
  }
  rocksdb::IOStatus NewDirectory(const std::string& name, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* result,
                                 rocksdb::IODebugContext* debug) override;

 private:
  class File;
  class LogFile;
  class Directory;
  rocksdb::IOStatus watch(rocksdb::IOStatus status, const std::string& name, Written* result);

  std::atomic<bool> sync_failed_ = false;
  std::atomic<bool> stopped_ = false;
};

} // namespace oncekey
