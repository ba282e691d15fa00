#include "store/journal/folder_lock.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace oncekey {
namespace {

std::string lock_path(const std::string& folder) { return fmt::format("{}/{}", folder, kLockFile); }

} // namespace

std::optional<pid_t> process_with_journal(const std::string& folder) {
  const int file = ::open(lock_path(folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const int asked = ::fcntl(file, F_GETLK, &lock);
  ::close(file);
  if (asked != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder + "/CURRENT", error))
    return invalid(fmt::format("there is no store at {}", folder));
  const int file = ::open(lock_path(folder).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return FolderLock(-1);
  if (file < 0) return unavailable(fmt::format("{} cannot be opened: {}", lock_path(folder), std::strerror(errno)));
  FolderLock taken(file);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file, F_SETLK, &lock) == 0) return taken;
  const std::optional<pid_t> holder = process_with_journal(folder);
  return Fault{FaultKind::conflict,
               fmt::format("the store at {} is in use by process {}", folder, holder ? std::to_string(*holder) : "?")};
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

} // namespace oncekey
