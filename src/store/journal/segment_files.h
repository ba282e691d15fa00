// SegmentFiles: the files of a journal's log. All have the same size and are written once from end to end when they are
// made, so that writing a batch changes no metadata of the file system: a sync is one flush of the disk.
#pragma once

#include <oncekey/result.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oncekey {

// The content of a file, as it was when it was mapped.
class MappedFile {
 public:
  MappedFile(const char* begin, std::size_t bytes) : bytes_(begin, bytes) {}
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

class SegmentFiles {
 public:
  // The folder exists, and is private. Waits for writes of a killed process that are still under way: the files are
  // locked as long as they are open anywhere.
  static Result<std::unique_ptr<SegmentFiles>> open(std::string folder, std::size_t segment_bytes);
  SegmentFiles(const SegmentFiles&) = delete;
  SegmentFiles& operator=(const SegmentFiles&) = delete;
  ~SegmentFiles();

  std::size_t segment_bytes() const { return segment_bytes_; }
  std::vector<std::uint32_t> numbers() const;
  // Of a segment that is there.
  int descriptor(std::uint32_t number) const;

  // A new segment full of zeros, durable with its name. Returns its number. One call at a time, beside the others.
  Result<std::uint32_t> make();

  // The whole content. What a killed process wrote last may not be durable yet: it is after this.
  Result<MappedFile> map(std::uint32_t number) const;

 private:
  SegmentFiles(std::string folder, std::size_t segment_bytes);
  std::string path_of(std::uint32_t number) const;
  Result<int> open_segment(std::uint32_t number) const;

  const std::string folder_;
  const std::size_t segment_bytes_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, int> descriptors_;
};

} // namespace oncekey
