// audit_files: the files of one audit log on disk.
//
// The gateway writes the file that `audit_log` names. Files that were rotated stay beside it, under a name that begins
// with that of the log and a dot: audit.log.000000000001 where the gateway rotated, audit.log.1 where logrotate did.
// Their order is that of the numbers of their lines.
#pragma once

#include "audit/chain.h"

#include <memory>
#include <vector>

namespace oncekey {

// An open file, or -1. Closes it.
class AuditFd {
 public:
  explicit AuditFd(int fd = -1) : fd_(fd) {}
  ~AuditFd();
  AuditFd(AuditFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  AuditFd& operator=(AuditFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct AuditFile {
  std::string path;
  AuditFd fd;              // to read; stays right when the file is renamed
  std::uint64_t first = 0; // the number of its first line
  std::uint64_t bytes = 0; // its size when it was looked at
};

struct AuditFiles {
  std::vector<AuditFile> files; // oldest lines first; none is empty
  // Files that have such a name and are no part of a chain, each with the reason: one that is compressed, say.
  std::vector<std::string> others;
};

// Those of the log at `path`. A fault if its folder cannot be read.
Result<AuditFiles> audit_files_of(const std::string& path);
// These files, whatever their names.
Result<AuditFiles> audit_files(const std::vector<std::string>& paths);

// The name that a file which begins with this line gets when it is rotated.
std::string rotated_name(const std::string& path, std::uint64_t first);

// The end of a file.
struct AuditTail {
  ChainHead last;          // its last whole line
  std::string line;        // that line
  std::uint64_t first = 0; // the number of the file's first line; 0 if it has none
  std::uint64_t bytes = 0; // the file's size
  std::uint64_t torn = 0;  // bytes behind the last whole line
  bool foreign = false;    // among them is a newline: no crash leaves that
  bool open_ended = false; // the last byte is no newline
  bool links = true;       // the last whole line names the hash of the one before it, as far as both were read
};
// Nothing if the file holds something else than a chain.
std::optional<AuditTail> tail_of(int fd, const ChainHash& hash);

// Bytes of the file at this place; fewer at its end. A fault if it cannot be read.
Result<std::string> read_at(int fd, std::uint64_t offset, std::size_t bytes);

// The text or number that a line has under this name; empty if it has none.
std::string audit_member(std::string_view line, std::string_view name);

} // namespace oncekey
