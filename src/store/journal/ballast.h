// Ballast: disk space kept by a file without content, for the day on which the disk is full.
//
// Opening a store writes a few files. A disk that others have filled would keep the gateway down until a person makes
// room. So the store sets a little aside while there is plenty, in PATH.ballast beside its folder, and a start that
// finds the disk full deletes it first. So does a running store without room for the endings of what was begun.
#pragma once

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace oncekey {

class Ballast {
 public:
  // More than opening needs, and nothing on a disk of today. It is made only where four times as much is free.
  static constexpr std::uint64_t kBytes = std::uint64_t{32} << 20;

  explicit Ballast(std::string folder) : folder_(std::move(folder)) {
    std::string beside = folder_;
    while (beside.size() > 1 && beside.ends_with('/')) beside.pop_back();
    path_ = beside + ".ballast";
  }

  // True if there was some.
  bool drop() const { return ::unlink(path_.c_str()) == 0; }
  // Makes it again where it is missing and there is plenty of room. A failure is of no consequence.
  void restore() const {
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

 private:
  std::string folder_;
  std::string path_;
};

} // namespace oncekey
