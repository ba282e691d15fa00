#include "base/private_files.h"

#include "base/crypto.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

Fault failed(std::string_view doing, const std::string& path) {
  return unavailable(fmt::format("{} {} failed: {}", doing, path, std::strerror(errno)));
}

// File systems of the kernel (/proc, /sys): nothing can be kept there, whatever their permissions say.
bool is_kernel_file_system(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return false;
  const auto type = static_cast<unsigned long>(status.f_type);
  return type == PROC_SUPER_MAGIC || type == SYSFS_MAGIC || type == DEBUGFS_MAGIC || type == CGROUP_SUPER_MAGIC ||
         type == CGROUP2_SUPER_MAGIC;
}

// A new file with this content under a name that is not in use; nothing is left behind if it fails.
Status write_new_file(const std::string& path, std::string_view content, Sync sync) {
  // O_EXCL: another user with access to the folder could have put a link there.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return failed("making", path);
  bool good = write_all(fd, content) == 0;
  if (good && sync == Sync::yes) good = ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  if (good) return ok_status();
  ::unlink(path.c_str());
  errno = error;
  return failed("writing", path);
}

} // namespace

Status make_private_folder(const std::string& path) {
  fs::path folder = fs::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  std::error_code error;
  if (folder.empty() || fs::exists(folder, error)) return ok_status();
  const fs::path parent = folder.parent_path();
  if (!parent.empty() && parent != folder) {
    if (const Status made = make_private_folder(parent.native()); !made) return made;
  }
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return unavailable(fmt::format("the folder {} cannot be created: {}", folder.native(), std::strerror(errno)));
  }
  if (!sync_folder_of(folder)) {
    return unavailable(fmt::format("the folder above {} cannot be synced: {}", folder.native(), std::strerror(errno)));
  }
  return ok_status();
}

Status make_private(const std::string& path) {
  struct stat now {};
  if (::lstat(path.c_str(), &now) != 0) return errno == ENOENT ? ok_status() : Status(failed("looking at", path));
  if (S_ISLNK(now.st_mode) || (now.st_mode & kOthers) == 0) return ok_status();
  const mode_t mode = now.st_mode & 07777;
  if (::chmod(path.c_str(), mode & ~kOthers) == 0) return ok_status();
  return invalid(
      fmt::format("{} can be read by other users of this machine (mode {:04o}), and this process cannot change that "
                  "because it runs as user {} and the owner is user {}: give the file to user {} and take the others' "
                  "access away (chown -R {} and chmod -R go= on its folder)",
                  path, mode, ::geteuid(), now.st_uid, ::geteuid(), ::geteuid()));
}

Status make_folder_private(const std::string& path) {
  // The folder first: from then on other users cannot reach the files in it.
  if (const Status narrowed = make_private(path); !narrowed) return narrowed;
  std::error_code error;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (const Status narrowed = make_private(at->path().native()); !narrowed) return narrowed;
  }
  if (error) return unavailable(fmt::format("the folder {} cannot be read: {}", path, error.message()));
  return ok_status();
}

Status replace_private_file(const std::string& path, std::string_view content, Sync sync) {
  const std::string next = path + ".new";
  ::unlink(next.c_str()); // a leftover of a crash
  if (const Status written = write_new_file(next, content, sync); !written) return written;
  if (::rename(next.c_str(), path.c_str()) != 0) {
    const Fault fault = failed("replacing", path);
    ::unlink(next.c_str());
    return fault;
  }
  if (sync == Sync::yes && !sync_folder_of(path)) return failed("syncing the folder of", path);
  return ok_status();
}

Result<bool> exchange_private_file(const std::string& path, std::string_view expected, std::string_view next,
                                   std::size_t bytes_max) {
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.native();
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) return failed("opening", folder);
  int locked = -1;
  do {
    locked = ::flock(lock, LOCK_EX);
  } while (locked != 0 && errno == EINTR);
  Result<bool> done = failed("locking", folder);
  if (locked == 0) {
    const Result<std::optional<std::string>> now = read_file_if_there(path, bytes_max);
    if (!now) {
      done = now.fault();
    } else if (now->value_or(std::string()) != expected) {
      done = false;
    } else if (const Status written = replace_private_file(path, next, Sync::yes); !written) {
      done = written.fault();
    } else {
      done = true;
      // Root's file in another user's folder is for that user: its process could not read it otherwise.
      struct stat owner {};
      if (::geteuid() == 0 && ::fstat(lock, &owner) == 0 && owner.st_uid != 0 &&
          ::lchown(path.c_str(), owner.st_uid, owner.st_gid) != 0)
        done = failed("giving its user", path);
    }
  }
  ::close(lock);
  return done;
}

Result<std::string> make_private_file_once(const std::string& path, std::string_view content) {
  const std::string next = fmt::format("{}.{:016x}.new", path, random_u64());
  if (const Status written = write_new_file(next, content, Sync::yes); !written) return written.fault();
  // A link fails where a rename would replace the file: the first process wins.
  const bool first = ::link(next.c_str(), path.c_str()) == 0;
  const int error = first ? 0 : errno;
  ::unlink(next.c_str());
  if (first) {
    if (!sync_folder_of(path)) return failed("syncing the folder of", path);
    return std::string(content);
  }
  errno = error;
  if (error != EEXIST) return failed("making", path);
  Result<std::optional<std::string>> there = read_file_if_there(path, content.size() + 1024);
  if (!there) return std::move(there).fault();
  if (!*there) return unavailable(fmt::format("{} was removed while it was read; try again", path));
  return **std::move(there);
}

Result<std::optional<std::string>> read_file_if_there(const std::string& path, std::size_t bytes_max) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return std::optional<std::string>();
  if (fd < 0) return failed("reading", path);
  std::string content(bytes_max + 1, '\0');
  std::size_t got = 0;
  while (got < content.size()) {
    const ssize_t bytes = ::read(fd, content.data() + got, content.size() - got);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) {
      const Fault fault = failed("reading", path);
      ::close(fd);
      return fault;
    }
    if (bytes == 0) break;
    got += static_cast<std::size_t>(bytes);
  }
  ::close(fd);
  if (got > bytes_max) return invalid(fmt::format("{} is longer than {} bytes", path, bytes_max));
  content.resize(got);
  return std::optional<std::string>(std::move(content));
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

bool sync_folder_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool synced = ::fsync(fd) == 0;
  ::close(fd);
  return synced;
}

std::optional<std::string> why_no_new_file_in(const std::string& folder) {
  if (is_kernel_file_system(folder))
    return fmt::format("{} belongs to the kernel and keeps no files; name a folder on a disk", folder);
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    return fmt::format("this user cannot write to {}: {}", folder, std::strerror(errno));
  return std::nullopt;
}

void set_core_dumps(CoreDumps dumps) {
  const bool allowed = dumps == CoreDumps::allowed;
  // Two locks: PR_SET_DUMPABLE also stops handlers that the kernel pipes a dump to, for which the limit does not count.
  ::prctl(PR_SET_DUMPABLE, allowed ? 1 : 0, 0, 0, 0);
  rlimit limit{};
  if (::getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = allowed ? limit.rlim_max : 0; // the hard limit stays: allowing goes by it
  ::setrlimit(RLIMIT_CORE, &limit);
}

} // namespace oncekey
