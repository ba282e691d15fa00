#include "bare_log.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace oncekey::bench {
namespace {

constexpr std::size_t kAlignment = 4096;

} // namespace

BareLog::BareLog(const std::string& path) : path_(path) {
  bytes_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, kFileBytes)));
  std::memset(bytes_.get(), 'x', kFileBytes);
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
  file_ = ::open(path.c_str(), kFlags | O_DIRECT, S_IRUSR | S_IWUSR);
  if (file_ < 0 && errno == EINVAL) file_ = ::open(path.c_str(), kFlags, S_IRUSR | S_IWUSR);
  if (file_ < 0) stop("the file of the bare log cannot be made: " + path);
  write(kFileBytes);
}

BareLog::~BareLog() {
  ::close(file_);
  ::unlink(path_.c_str());
}

void BareLog::write(std::size_t bytes) {
  if (offset_ + bytes > kFileBytes) offset_ = 0;
  const iovec part{bytes_.get(), bytes};
  if (::pwritev2(file_, &part, 1, static_cast<off_t>(offset_), RWF_DSYNC) != static_cast<ssize_t>(bytes))
    stop("a write of the bare log failed: " + path_);
  offset_ += bytes;
}

} // namespace oncekey::bench
