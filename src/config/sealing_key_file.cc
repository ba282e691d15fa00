#include "config/sealing_key_file.h"

#include "base/faults.h"
#include "config/identity_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace oncekey {
namespace {

// Some thousand keys fit.
constexpr std::size_t kLargestKeyFile = 1u << 20;

} // namespace

Result<std::unique_ptr<const SealingKeys>> load_sealing_keys(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return invalid("{}: {}", path, std::strerror(errno));
    return invalid("{}: no such file. Make one with: (umask 077; echo \"1 $(openssl rand -hex 32)\" > {})", path, path);
  }
  if (!S_ISREG(status.st_mode)) return invalid("{} is not a file", path);
  if (status.st_uid != ::geteuid()) return invalid("{} belongs to another user: chown it to the gateway's", path);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return invalid("{} can be read by other users (mode {:04o}): run chmod 600 {}", path, status.st_mode & 07777, path);
  const auto text = read_whole(path, kLargestKeyFile);
  if (!text) return invalid("{}: {}", path, text.fault().message);
  return SealingKeys::parse(*text, path);
}

} // namespace oncekey
