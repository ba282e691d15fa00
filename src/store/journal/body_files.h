// BodyFiles: what is too large for the log, in synced files of its own: stored responses and messages.
//
// A batch must not wait for one large answer. So the bytes are written and synced first, by a thread; then the small
// entry with a reference to them goes to the log like any other. A file that no entry refers to (a crash between the
// two, a record that has expired) is removed by sweep().
//
//   PATH/bodies/KIND-ID-NUMBER   KIND is r (a response) or m (a message), ID that of the record or job, NUMBER is
//   random reference := 0xff number:u64 bytes:u64 checksum:u64       where an encoded record or message begins with its
//   format
#pragma once

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>

namespace oncekey {

// Larger ones get a file.
inline constexpr std::size_t kLogBodyBytesMax = std::size_t{256} << 10;
inline constexpr std::size_t kBodyReferenceBytes = 1 + 3 * sizeof(std::uint64_t);

struct BodyReference {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};
void encode_body_reference(const BodyReference& reference, std::string& out);
// Nothing if the value does not begin with one; else what follows it is left.
std::optional<BodyReference> take_body_reference(std::string_view& value);

inline std::string_view without_reference(std::string_view value) {
  (void)take_body_reference(value);
  return value;
}

enum class BodyFileKind : char { response = 'r', message = 'm' };

class BodyFiles {
 public:
  // The folder is made if it is missing.
  static Result<std::unique_ptr<BodyFiles>> open(std::string folder);
  // What was asked for is written before.
  ~BodyFiles();
  BodyFiles(const BodyFiles&) = delete;
  BodyFiles& operator=(const BodyFiles&) = delete;

  // `done` is called on the thread of this object, once the file is durable or could not be written. The file is not
  // swept before `done` has returned.
  using Written = std::function<void(Result<BodyReference> reference)>;
  void write(BodyFileKind kind, const RecordId& id, std::string bytes, Written done);

  // Of all files.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  // A fault if it is missing or damaged.
  Result<std::string> read(BodyFileKind kind, const RecordId& id, const BodyReference& reference) const;

  // Looks at some files, and goes on with the next ones at the next call. Removes those for which `is_referred_to` says
  // no.
  using IsReferredTo = std::function<bool(BodyFileKind kind, const RecordId& id, std::uint64_t number)>;
  void sweep(std::size_t at_most, const IsReferredTo& is_referred_to);

 private:
  struct Asked {
    BodyFileKind kind;
    RecordId id;
    std::string bytes;
    Written done;
  };

  explicit BodyFiles(std::string folder);
  std::string path_of(BodyFileKind kind, const RecordId& id, std::uint64_t number) const;
  Result<BodyReference> write(const Asked& asked, std::uint64_t number);
  void run();

  const std::string folder_;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::filesystem::directory_iterator swept_; // of the thread that sweeps
  std::mutex mutex_;
  std::condition_variable asked_for_;
  std::deque<Asked> queue_;
  std::size_t queued_bytes_ = 0;
  std::optional<std::uint64_t> under_way_; // the file that no entry refers to yet
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace oncekey
