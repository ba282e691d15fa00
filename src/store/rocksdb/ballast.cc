#include "store/rocksdb/ballast.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <utility>

namespace oncekey {

Ballast::Ballast(std::string folder) : folder_(std::move(folder)) {
  std::string beside = folder_;
  while (beside.size() > 1 && beside.ends_with('/')) beside.pop_back();
  path_ = beside + ".ballast";
}

bool Ballast::drop() const { return ::unlink(path_.c_str()) == 0; }

void Ballast::restore() const {
  if (::access(path_.c_str(), F_OK) == 0) return;
  struct statvfs disk {};
  if (::statvfs(folder_.c_str(), &disk) != 0) return;
  if (std::uint64_t{disk.f_bavail} * disk.f_frsize < 4 * kBytes) return;
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const bool made = ::posix_fallocate(fd, 0, static_cast<off_t>(kBytes)) == 0;
  ::close(fd);
  if (!made) ::unlink(path_.c_str());
}

} // namespace oncekey
