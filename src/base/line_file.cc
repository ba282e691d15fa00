#include "base/line_file.h"

#include "base/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace oncekey {
namespace {

constexpr std::chrono::seconds kWriteEvery{1};
// With this much gathered, the lines are written before the second is over.
constexpr std::size_t kWriteAt = 64u << 10;
// About ten seconds of lines of a busy gateway. Further lines are dropped and counted.
constexpr std::size_t kGatheredMost = 8u << 20;

int open_to_append(const std::string& path) {
  // Opening a FIFO would wait for its reader; the writes of the log may wait.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
  if (fd >= 0) (void)::fcntl(fd, F_SETFL, O_APPEND);
  return fd;
}

// A fault if the path exists and cannot be a log file. Under /dev a pipe is fine: the standard streams may be pipes.
Status check_kind(const std::string& path) {
  struct stat entry {};
  if (::stat(path.c_str(), &entry) != 0) return ok_status();
  if (S_ISDIR(entry.st_mode)) return invalid(fmt::format("{}: {}", path, std::strerror(EISDIR)));
  if (S_ISREG(entry.st_mode) || path.starts_with("/dev/")) return ok_status();
  return invalid(fmt::format("{}: is not a regular file; give the path of a file, or - for standard output", path));
}

} // namespace

Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path, Log& log) {
  if (const Status kind = path == "-" ? ok_status() : check_kind(path); !kind) return kind.fault();
  const int fd = path == "-" ? STDOUT_FILENO : open_to_append(path);
  if (fd < 0) return invalid(fmt::format("{}: {}", path, std::strerror(errno)));
  return std::unique_ptr<LineFile>(new LineFile(path, fd, log));
}

Status LineFile::check(const std::string& path) {
  if (path == "-") return ok_status();
  if (const Status kind = check_kind(path); !kind) return kind;
  const bool there = ::access(path.c_str(), F_OK) == 0;
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int missing = there ? ::access(path.c_str(), W_OK) : ::access(folder.c_str(), W_OK | X_OK);
  if (missing != 0) return invalid(fmt::format("{}: {}", path, std::strerror(errno)));
  return ok_status();
}

LineFile::LineFile(std::string path, int fd, Log& log)
    : path_(std::move(path)), log_(log), fd_(fd), thread_([this] { run(); }) {}

LineFile::~LineFile() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  flush();
  if (fd_ != STDOUT_FILENO) ::close(fd_);
}

void LineFile::append(std::string_view line) {
  bool many = false;
  {
    const std::lock_guard lock(mutex_);
    if (gathered_.size() + line.size() > kGatheredMost) {
      ++left_out_;
      return;
    }
    many = gathered_.size() < kWriteAt && gathered_.size() + line.size() >= kWriteAt;
    gathered_.append(line);
  }
  if (many) wake_.notify_one();
}

void LineFile::flush() {
  const std::lock_guard file(file_mutex_);
  write_gathered();
}

void LineFile::reopen() {
  if (path_ == "-") return;
  const std::lock_guard file(file_mutex_);
  write_gathered();
  const int fd = open_to_append(path_);
  if (fd < 0) {
    log_.error("access_log_not_reopened", {{"reason", fmt::format("{}: {}", path_, std::strerror(errno))},
                                           {"next", "lines go on into the old file; send SIGUSR1 again"}});
    return;
  }
  ::close(std::exchange(fd_, fd));
}

// Under file_mutex_.
void LineFile::write_gathered() {
  std::string lines;
  std::uint64_t left_out = 0;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(gathered_);
    left_out = std::exchange(left_out_, 0);
  }
  const int error = write_all(fd_, lines);
  if (error != 0) {
    log_.seldom(LogLevel::warning, "access_log_failed", {},
                {{"reason", fmt::format("{}: {}", path_, std::strerror(error))}});
  }
  if (left_out > 0) {
    log_.seldom(LogLevel::warning, "access_log_left_out", {},
                {{"lines", left_out}, {"reason", "the disk does not keep up"}});
  }
}

void LineFile::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kWriteEvery, [this] { return stopping_ || gathered_.size() >= kWriteAt; });
      if (stopping_) return;
    }
    flush();
  }
}

} // namespace oncekey
