#include "store/journal/segment_files.h"

#include "store/journal/log_format.h"

#include "base/private_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".segment";
// A segment is made under this name, and gets its own once it is whole.
constexpr std::string_view kUnfinished = ".unfinished";
constexpr std::size_t kWrittenAtOnce = 1u << 20;

Fault failed(std::string_view doing, const std::string& path) {
  return unavailable(fmt::format("{} {} failed: {}", doing, path, std::strerror(errno)));
}

Status fill_with_zeros(int file, std::size_t bytes, const std::string& path) {
  const std::string zeros(kWrittenAtOnce, '\0');
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t part = std::min(left, zeros.size());
    if (const int error = write_all(file, std::string_view(zeros).substr(0, part)); error != 0) {
      errno = error;
      return failed("writing", path);
    }
    left -= part;
  }
  if (::fsync(file) != 0) return failed("syncing", path);
  return ok_status();
}

} // namespace

std::optional<std::uint32_t> segment_number_in(const fs::path& file) {
  if (file.extension() != kEnding) return std::nullopt;
  const std::string stem = file.stem().native();
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
  if (error != std::errc{} || end != stem.data() + stem.size()) return std::nullopt;
  return number;
}

std::string segment_name(std::uint32_t number) { return fmt::format("{:06}{}", number, kEnding); }

SegmentFiles::SegmentFiles(std::string folder, std::size_t segment_bytes)
    : folder_(std::move(folder)), segment_bytes_(segment_bytes) {}

SegmentFiles::~SegmentFiles() {
  for (const auto& [number, descriptor] : descriptors_) ::close(descriptor);
}

Result<std::unique_ptr<SegmentFiles>> SegmentFiles::open(std::string folder, std::size_t segment_bytes) {
  std::unique_ptr<SegmentFiles> files(new SegmentFiles(std::move(folder), segment_bytes));
  std::error_code error;
  for (fs::directory_iterator at(files->folder_, error), end; !error && at != end; at.increment(error)) {
    std::error_code stays; // then it is written over when its number is needed
    if (at->path().extension() == kUnfinished) fs::remove(at->path(), stays);
    const std::optional<std::uint32_t> number = segment_number_in(at->path());
    if (!number) continue;
    const Result<int> opened = files->open_segment(*number);
    if (!opened) return opened.fault();
    files->descriptors_[*number] = *opened;
  }
  if (error) return unavailable(fmt::format("{} cannot be read: {}", files->folder_, error.message()));
  return files;
}

std::string SegmentFiles::path_of(std::uint32_t number) const {
  return fmt::format("{}/{}", folder_, segment_name(number));
}

// Past the page cache where the file system allows that: what is written is not read again before the next start.
Result<int> SegmentFiles::open_segment(std::uint32_t number) const {
  const std::string path = path_of(number);
  int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  if (file < 0 && errno == EINVAL) file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return failed("opening", path);
  // A killed process is gone before its last write is: io_uring goes on with it. The lock belongs to the open file,
  // which the write holds, so that it is free once nothing of an earlier process can reach the disk any more. Where a
  // file system has no such locks, the start goes on without.
  while (::flock(file, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat found {};
  if (::fstat(file, &found) == 0 && static_cast<std::size_t>(found.st_size) == segment_bytes_) return file;
  ::close(file);
  return corrupt(fmt::format("{} does not have {} bytes, as a segment of this journal has", path, segment_bytes_));
}

std::vector<std::uint32_t> SegmentFiles::numbers() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, descriptor] : descriptors_) numbers.push_back(number);
  return numbers;
}

int SegmentFiles::descriptor(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  return descriptors_.at(number);
}

Result<std::uint32_t> SegmentFiles::make() {
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!descriptors_.empty()) number = descriptors_.rbegin()->first + 1;
  }
  const std::string path = path_of(number);
  const std::string unfinished = path + std::string(kUnfinished);
  const int file = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) return failed("making", unfinished);
  const Status filled = fill_with_zeros(file, segment_bytes_, unfinished);
  ::close(file);
  if (!filled) {
    ::unlink(unfinished.c_str());
    return filled.fault();
  }
  if (::rename(unfinished.c_str(), path.c_str()) != 0 || !sync_folder_of(path)) return failed("naming", path);
  const Result<int> opened = open_segment(number);
  if (!opened) return opened.fault();
  const std::lock_guard lock(mutex_);
  descriptors_[number] = *opened;
  return number;
}

Result<SegmentContent> SegmentFiles::read(std::uint32_t number) const {
  const int file = descriptor(number);
  if (::fdatasync(file) != 0) return failed("syncing", path_of(number));
  SegmentContent content;
  content.begin.reset(static_cast<char*>(std::aligned_alloc(kBlockBytes, segment_bytes_)));
  if (content.begin == nullptr) return unavailable("there is no memory to read a segment of the journal");
  while (content.bytes < segment_bytes_) {
    const ssize_t got = ::pread(file, content.begin.get() + content.bytes, segment_bytes_ - content.bytes,
                                static_cast<off_t>(content.bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return corrupt(fmt::format("{} cannot be read at byte {}: {}", path_of(number), content.bytes,
                                 got == 0 ? "it is cut short" : std::strerror(errno)));
    }
    content.bytes += static_cast<std::size_t>(got);
  }
  return content;
}

} // namespace oncekey
