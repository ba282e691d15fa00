#include "audit/audit_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <boost/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

// Enough for the last two lines and a torn one, and so for several of the usual length.
constexpr std::size_t kTailBytes = 4 * kAuditLineMax;

std::string reason(const std::string& path) { return fmt::format("{}: {}", path, std::strerror(errno)); }

Result<std::optional<AuditFile>> look_at(const std::string& path, std::vector<std::string>& others) {
  AuditFile file{path, AuditFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0, 0};
  if (file.fd.get() < 0) return unavailable(reason(path));
  struct stat entry {};
  if (::fstat(file.fd.get(), &entry) != 0) return unavailable(reason(path));
  if (!S_ISREG(entry.st_mode)) return std::optional<AuditFile>();
  file.bytes = static_cast<std::uint64_t>(entry.st_size);
  if (file.bytes == 0) return std::optional<AuditFile>();
  const Result<std::string> beginning = read_at(file.fd.get(), 0, kAuditLineMax + 1);
  if (!beginning) return unavailable(fmt::format("{}: {}", path, beginning.fault().message));
  if (beginning->starts_with("\x1f\x8b") || beginning->starts_with("\x28\xb5\x2f\xfd")) {
    others.push_back(fmt::format("{} is compressed: unpack it first", path));
    return std::optional<AuditFile>();
  }
  const std::optional<ChainPlace> place = place_of(std::string_view(*beginning).substr(0, beginning->find('\n')));
  if (!place) {
    others.push_back(fmt::format("{} does not begin with a line of an audit log", path));
    return std::optional<AuditFile>();
  }
  file.first = place->n;
  return std::optional<AuditFile>(std::move(file));
}

bool is_whole(std::string_view line) {
  boost::json::error_code error;
  boost::json::parse(boost::json::string_view(line.data(), line.size()), error);
  return !error && place_of(line);
}

} // namespace

AuditFd::~AuditFd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::string> read_at(int fd, std::uint64_t offset, std::size_t bytes) {
  std::string out(bytes, '\0');
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t read = ::pread(fd, out.data() + got, bytes - got, static_cast<off_t>(offset + got));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return unavailable(std::strerror(errno));
    if (read == 0) break;
    got += static_cast<std::size_t>(read);
  }
  out.resize(got);
  return out;
}

Result<AuditFiles> audit_files(const std::vector<std::string>& paths) {
  AuditFiles found;
  for (const std::string& path : paths) {
    auto file = look_at(path, found.others);
    if (!file) return std::move(file).fault();
    if (*file) found.files.push_back(**std::move(file));
  }
  std::sort(found.files.begin(), found.files.end(),
            [](const AuditFile& a, const AuditFile& b) { return a.first < b.first; });
  return found;
}

Result<AuditFiles> audit_files_of(const std::string& path) {
  const fs::path log(path);
  const fs::path folder = log.has_parent_path() ? log.parent_path() : fs::path(".");
  const std::string name = log.filename().native();
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string entry = at->path().filename().native();
    if (entry == name || entry.starts_with(name + ".")) paths.push_back((folder / entry).native());
  }
  if (error) return unavailable(fmt::format("{}: {}", folder.native(), error.message()));
  return audit_files(paths);
}

std::string rotated_name(const std::string& path, std::uint64_t first) { return fmt::format("{}.{:012}", path, first); }

std::optional<AuditTail> tail_of(int fd, const ChainHash& hash) {
  struct stat entry {};
  if (::fstat(fd, &entry) != 0) return std::nullopt;
  AuditTail tail;
  tail.bytes = static_cast<std::uint64_t>(entry.st_size);
  const Result<std::string> beginning = read_at(fd, 0, kAuditLineMax + 1);
  if (!beginning) return std::nullopt;
  if (const auto place = place_of(std::string_view(*beginning).substr(0, beginning->find('\n')))) tail.first = place->n;
  const std::uint64_t from = tail.bytes > kTailBytes ? tail.bytes - kTailBytes : 0;
  const Result<std::string> end = read_at(fd, from, kTailBytes);
  if (!end) return std::nullopt;
  const std::string_view text = *end;
  tail.open_ended = !text.empty() && text.back() != '\n';
  // From the end backwards, to the last line that is whole.
  std::string_view before = text;
  while (!before.empty()) {
    const bool terminated = before.back() == '\n';
    const std::string_view lines = before.substr(0, before.size() - (terminated ? 1 : 0));
    const std::size_t newline = lines.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const std::string_view line = lines.substr(begin);
    if (is_whole(line)) {
      tail.line = line;
      tail.last = {place_of(line)->n, hash.of(line)};
      tail.torn = text.size() - before.size();
      tail.foreign = text.substr(before.size()).find('\n') != std::string_view::npos;
      const std::size_t earlier_end = begin == 0 ? 0 : begin - 1;
      const std::size_t earlier = text.substr(0, earlier_end).rfind('\n');
      if (begin > 0 && earlier != std::string_view::npos) {
        const std::string_view previous = text.substr(earlier + 1, earlier_end - earlier - 1);
        if (place_of(previous)) tail.links = hash.of(previous) == place_of(line)->prev;
      }
      return tail;
    }
    before = before.substr(0, begin);
  }
  return std::nullopt;
}

std::string audit_member(std::string_view line, std::string_view name) {
  boost::json::error_code error;
  const boost::json::value parsed = boost::json::parse(boost::json::string_view(line.data(), line.size()), error);
  if (error || !parsed.is_object()) return {};
  const boost::json::value* const member =
      parsed.get_object().if_contains(boost::json::string_view(name.data(), name.size()));
  if (member == nullptr) return {};
  if (member->is_string()) return std::string(member->get_string().c_str(), member->get_string().size());
  return boost::json::serialize(*member);
}

} // namespace oncekey
