#include "base/line_file.h"

#include "base/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace oncekey {
namespace {

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
  const int missing = there ? ::access(path.c_str(), W_OK) : ::access(folder.c_str(), F_OK);
  if (missing != 0) return invalid(fmt::format("{}: {}", path, std::strerror(errno)));
  if (there) return ok_status();
  const std::optional<std::string> why = why_no_new_file_in(folder);
  return why ? Status(invalid(fmt::format("{}: {}", path, *why))) : ok_status();
}

LineFile::LineFile(std::string path, int fd, Log& log)
    : path_(std::move(path)),
      log_(log),
      fd_(fd),
      writer_([this](std::string_view lines, std::uint64_t left_out) { write(lines, left_out); }) {}

LineFile::~LineFile() {
  writer_.stop();
  if (fd_ != STDOUT_FILENO) ::close(fd_);
}

void LineFile::reopen() {
  if (path_ == "-") return;
  writer_.between_writes([this] {
    const int fd = open_to_append(path_);
    if (fd < 0) {
      log_.error("access_log_not_reopened", {{"reason", fmt::format("{}: {}", path_, std::strerror(errno))},
                                             {"next", "lines go on into the old file; send SIGUSR1 again"}});
      return;
    }
    ::close(std::exchange(fd_, fd));
  });
}

void LineFile::write(std::string_view lines, std::uint64_t left_out) {
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

} // namespace oncekey
