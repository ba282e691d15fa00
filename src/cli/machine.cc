#include "cli/machine.h"

#include <fmt/format.h>
#include <linux/io_uring.h>
#include <linux/magic.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace oncekey {
namespace {

constexpr int kSyncsMeasured = 20;
constexpr std::size_t kMeasuredBytes = 4096;

struct KnownFileSystem {
  std::uint32_t magic;
  FileSystemKind kind;
  const char* name;
};
// Those that linux/magic.h does not name have their numbers from statfs(2).
constexpr std::array kKnownFileSystems{
    KnownFileSystem{EXT4_SUPER_MAGIC, FileSystemKind::disk, "ext4"},
    KnownFileSystem{0x58465342, FileSystemKind::disk, "xfs"},
    KnownFileSystem{BTRFS_SUPER_MAGIC, FileSystemKind::disk, "btrfs"},
    KnownFileSystem{F2FS_SUPER_MAGIC, FileSystemKind::disk, "f2fs"},
    KnownFileSystem{0x2FC12FC1, FileSystemKind::disk, "zfs"},
    KnownFileSystem{TMPFS_MAGIC, FileSystemKind::memory, "tmpfs"},
    KnownFileSystem{RAMFS_MAGIC, FileSystemKind::memory, "ramfs"},
    KnownFileSystem{OVERLAYFS_SUPER_MAGIC, FileSystemKind::container, "overlayfs"},
    KnownFileSystem{NFS_SUPER_MAGIC, FileSystemKind::network, "nfs"},
    KnownFileSystem{SMB_SUPER_MAGIC, FileSystemKind::network, "smb"},
    KnownFileSystem{0xFF534D42, FileSystemKind::network, "cifs"},
    KnownFileSystem{0xFE534D42, FileSystemKind::network, "smb2"},
    KnownFileSystem{CEPH_SUPER_MAGIC, FileSystemKind::network, "ceph"},
    KnownFileSystem{V9FS_MAGIC, FileSystemKind::network, "9p"},
    KnownFileSystem{AFS_SUPER_MAGIC, FileSystemKind::network, "afs"},
};

} // namespace

std::optional<FileSystem> file_system_of(const std::string& folder) {
  struct statfs found {};
  if (::statfs(folder.c_str(), &found) != 0) return std::nullopt;
  const auto magic = static_cast<std::uint32_t>(found.f_type);
  const auto known = std::find_if(kKnownFileSystems.begin(), kKnownFileSystems.end(),
                                  [&](const KnownFileSystem& one) { return one.magic == magic; });
  if (known == kKnownFileSystems.end()) return FileSystem{FileSystemKind::disk, fmt::format("type {:#x}", magic)};
  return FileSystem{known->kind, known->name};
}

Result<SyncTimes> measure_syncs(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) return unavailable(std::strerror(errno));
  const std::string block(kMeasuredBytes, 'x');
  std::vector<std::chrono::microseconds> times;
  int error = 0;
  for (int i = 0; i <= kSyncsMeasured && error == 0; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    if (::pwrite(file, block.data(), block.size(), 0) != std::ssize(block) || ::fdatasync(file) != 0) error = errno;
    const auto ended = std::chrono::steady_clock::now();
    // The first one also makes the file's block.
    if (i > 0) times.push_back(std::chrono::duration_cast<std::chrono::microseconds>(ended - begun));
  }
  ::close(file);
  if (error != 0) return unavailable(std::strerror(error));
  std::sort(times.begin(), times.end());
  return SyncTimes{times[times.size() / 2], times.back()};
}

Status may_use_io_uring() {
  io_uring_params parameters{};
  const long ring = ::syscall(SYS_io_uring_setup, 1, &parameters);
  if (ring < 0) return unavailable(std::strerror(errno));
  ::close(static_cast<int>(ring));
  return ok_status();
}

} // namespace oncekey
