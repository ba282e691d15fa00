// SegmentFiles: the files of a journal's log. All have the same size and are written once from end to end when they are
// made, so that writing a batch changes no metadata of the file system: a sync is one flush of the disk.
#pragma once

#include <oncekey/result.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oncekey {

// The content of a segment, as it was when it was read.
struct SegmentContent {
  std::unique_ptr<char, decltype(&std::free)> begin{nullptr, &std::free};
  std::size_t bytes = 0;
  std::string_view view() const { return {begin.get(), bytes}; }
};

// Of a file in the folder of the log; nothing if it is not a segment.
std::optional<std::uint32_t> segment_number_in(const std::filesystem::path& file);
// "000007.segment"
std::string segment_name(std::uint32_t number);

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

  // The whole content, which is durable: what a killed process wrote last may have been in a cache only.
  Result<SegmentContent> read(std::uint32_t number) const;

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
