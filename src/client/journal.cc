#include "client/journal.h"

#include "base/crypto.h"
#include "base/private_files.h"
#include "core/judge.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace oncekey {
namespace {

constexpr std::string_view kFormat = "oncekey journal 1\n";
constexpr std::string_view kFormatFamily = "oncekey journal ";
constexpr std::size_t kChecksumDigits = 16;
// A journal with fewer lines is not worth compacting.
constexpr std::uint64_t kCompactFromLines = 1'000;
// A file larger than this is not a journal: no operation begins in one of half this size, and each adds less than 1
// KiB.
constexpr std::uint64_t kJournalBytesMax = 256u << 20;

std::string checksum(std::string_view text) { return sha256_hex({text}).substr(0, kChecksumDigits); }

std::string sealed(std::string_view content) { return fmt::format("{} {}\n", checksum(content), content); }

// The content of a line without its checksum; nothing if the checksum is wrong.
std::optional<std::string_view> unsealed(std::string_view line) {
  if (line.size() < kChecksumDigits + 2 || line[kChecksumDigits] != ' ') return std::nullopt;
  const std::string_view content = line.substr(kChecksumDigits + 1);
  if (line.substr(0, kChecksumDigits) != checksum(content)) return std::nullopt;
  return content;
}

std::string_view next_word(std::string_view& text) {
  const std::size_t blank = text.find(' ');
  const std::string_view word = text.substr(0, blank);
  text = blank == std::string_view::npos ? std::string_view{} : text.substr(blank + 1);
  return word;
}

std::string begin_line(const std::string& operation, const JournalEntry& entry) {
  return sealed(fmt::format("begin {} {} {} {} {} {}", operation, entry.fingerprint, entry.key,
                            entry.begun.time_since_epoch().count(), entry.run, entry.summary));
}

std::string end_line(const std::string& operation, std::string_view key, const JournalEnd& how) {
  return sealed(fmt::format("end {} {} {} {} {}", operation, key, how.at.time_since_epoch().count(),
                            how.until.time_since_epoch().count(), how.status));
}

template <typename Number>
bool read_number(std::string_view word, Number& out) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
  return error == std::errc{} && end == word.data() + word.size();
}

bool read_time(std::string_view word, Time& out) {
  std::int64_t millis = 0;
  if (!read_number(word, millis)) return false;
  out = Time(Millis(millis));
  return true;
}

bool is_over(const JournalEntry& entry, Time now) { return entry.ended && entry.ended->until <= now; }

} // namespace

// Holds the file's lock from construction to destruction.
class Journal::Locked {
 public:
  explicit Locked(Journal& journal) : thread_lock_(journal.mutex_), journal_(journal), status_(take()) {}
  ~Locked() {
    if (journal_.fd_ >= 0) ::flock(journal_.fd_, LOCK_UN);
  }
  const Status& status() const { return status_; }

 private:
  Status take() {
    // Another round for each time another process replaced the file between opening and locking it.
    for (int round = 0; round < 100; ++round) {
      if (journal_.fd_ < 0) {
        if (Status opened = journal_.reopen(); !opened) return opened;
      }
      while (::flock(journal_.fd_, LOCK_EX) != 0) {
        if (errno != EINTR) return journal_.failed("locking");
      }
      struct stat mine {};
      struct stat named {};
      if (::fstat(journal_.fd_, &mine) == 0 && ::stat(journal_.path_.c_str(), &named) == 0 &&
          mine.st_ino == named.st_ino && mine.st_dev == named.st_dev) {
        return journal_.catch_up();
      }
      ::close(journal_.fd_);
      journal_.fd_ = -1;
    }
    return unavailable(fmt::format("the journal {} is replaced again and again", journal_.path_));
  }

  const std::lock_guard<std::mutex> thread_lock_;
  Journal& journal_;
  const Status status_;
};

Fault Journal::failed(std::string_view doing) const {
  return unavailable(fmt::format("{} the journal {} failed: {}", doing, path_, std::strerror(errno)));
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& path, std::uint64_t bytes_max) {
  std::unique_ptr<Journal> journal(new Journal(path, bytes_max));
  const Locked locked(*journal);
  if (!locked.status()) return locked.status().fault();
  return journal;
}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

Status Journal::reopen() {
  read_to_ = 0;
  lines_ = 0;
  torn_ = false;
  entries_.clear();
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd_ < 0) return failed("opening");
  // The file tells which requests were sent. One that was copied here may be readable for other users.
  struct stat file {};
  if (::fstat(fd_, &file) != 0) return failed("opening");
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0 && ::fchmod(fd_, S_IRUSR | S_IWUSR) != 0) {
    return invalid(
        fmt::format("the journal {} can be read by other users, and this process is not its owner: give it a "
                    "file of its own, or take the others' access away with chmod go=",
                    path_));
  }
  return ok_status();
}

// Reads what was added since the last time.
Status Journal::catch_up() {
  struct stat now {};
  if (::fstat(fd_, &now) != 0) return failed("reading");
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (size > kJournalBytesMax)
    return corrupt(fmt::format("{} is too large to be a journal of keys: more than {} bytes", path_, kJournalBytesMax));
  if (size < read_to_)
    return corrupt(fmt::format("the journal {} has become shorter: another program changed it", path_));
  std::string added(size - read_to_, '\0');
  std::size_t got = 0;
  while (got < added.size()) {
    const ssize_t bytes = ::pread(fd_, added.data() + got, added.size() - got, static_cast<off_t>(read_to_ + got));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return failed("reading");
    got += static_cast<std::size_t>(bytes);
  }

  torn_ = false;
  std::size_t at = 0;
  if (read_to_ == 0 && !added.empty()) {
    const bool begun = std::string_view(kFormat).starts_with(added); // a crash while the file was made
    if (!begun && !added.starts_with(kFormat)) {
      if (added.starts_with(kFormatFamily))
        return Fault{
            FaultKind::newer_format,
            fmt::format("the journal {} was written by a newer version of oncekey: run that version, or a later "
                        "one",
                        path_)};
      return corrupt(fmt::format("{} is not a journal of keys", path_));
    }
    if (added.size() < kFormat.size()) {
      torn_ = true;
      return ok_status();
    }
    at = kFormat.size();
    read_to_ = at;
  }
  const std::uint64_t base = read_to_ - at;
  while (at < added.size()) {
    const std::size_t end = added.find('\n', at);
    const bool whole = end != std::string::npos;
    const auto content = whole ? unsealed(std::string_view(added).substr(at, end - at)) : std::nullopt;
    at = whole ? end + 1 : added.size();
    if (!content) {
      torn_ = true;
      continue;
    }
    if (torn_) {
      return corrupt(
          fmt::format("the journal {} has a damaged line in its middle, before byte {}: find out what became "
                      "of its operation before you remove the file",
                      path_, base + at));
    }
    if (Status taken = take_line(*content); !taken) return taken;
    read_to_ = base + at;
    ++lines_;
  }
  return ok_status();
}

Status Journal::take_line(std::string_view line) {
  const std::string_view kind = next_word(line);
  const std::string operation(next_word(line));
  if (kind == "begin") {
    JournalEntry entry;
    entry.fingerprint = next_word(line);
    entry.key = next_word(line);
    if (read_time(next_word(line), entry.begun) && read_number(next_word(line), entry.run) && !entry.key.empty()) {
      entry.summary = line;
      entries_[operation] = std::move(entry);
      return ok_status();
    }
  } else if (kind == "end") {
    const std::string_view key = next_word(line);
    JournalEnd how;
    if (read_time(next_word(line), how.at) && read_time(next_word(line), how.until) && read_number(line, how.status)) {
      const auto it = entries_.find(operation);
      if (it != entries_.end() && it->second.key == key) it->second.ended = how;
      return ok_status();
    }
  } else if (kind == "forget") {
    const auto it = entries_.find(operation);
    if (it != entries_.end() && it->second.key == line) entries_.erase(it);
    return ok_status();
  }
  // The checksum is right: another version of this program wrote the line.
  return Fault{FaultKind::newer_format, fmt::format("the journal {} holds a line of an unknown kind", path_)};
}

Status Journal::append(std::string_view content) {
  if (torn_ && ::ftruncate(fd_, static_cast<off_t>(read_to_)) != 0) return failed("mending");
  torn_ = false;
  const bool fresh = read_to_ == 0;
  const std::string bytes = fmt::format("{}{}", fresh ? kFormat : "", content);
  if (const int error = write_all(fd_, bytes); error != 0) {
    errno = error;
    torn_ = true; // what was written is behind read_to_; the next append cuts it off
    return failed("writing");
  }
  // After a failed sync a second one may report success falsely. The file is opened again and read from the start.
  if (::fsync(fd_) != 0 || (fresh && !sync_folder_of(path_))) {
    const Fault fault = failed("syncing");
    ::close(fd_);
    fd_ = -1;
    return fault;
  }
  return catch_up();
}

Status Journal::compact_if_worthwhile(Time now) {
  if (lines_ < kCompactFromLines) return ok_status();
  std::uint64_t of_use = 0;
  for (const auto& [operation, entry] : entries_) of_use += is_over(entry, now) ? 0 : entry.ended ? 2 : 1;
  return of_use * 2 > lines_ ? ok_status() : compact(now);
}

Status Journal::compact(Time now) {
  const std::string next = path_ + ".new";
  // A file left by a crash is overwritten: the lock on the journal keeps other processes away from it.
  const int fd = ::open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return failed("compacting");
  std::string content(kFormat);
  for (const auto& [operation, entry] : entries_) {
    if (is_over(entry, now)) continue;
    content += begin_line(operation, entry);
    if (entry.ended) content += end_line(operation, entry.key, *entry.ended);
  }
  const int error = write_all(fd, content);
  const bool good = error == 0 && ::fsync(fd) == 0 && ::rename(next.c_str(), path_.c_str()) == 0;
  ::close(fd);
  if (!good) return failed("compacting");
  if (!sync_folder_of(path_)) return failed("compacting");
  // This file is not the journal any more; the next step opens the new one.
  ::close(fd_);
  fd_ = -1;
  return ok_status();
}

// A step of its own, with its own lock: compacting replaces the file.
Status Journal::make_room(Time now) {
  const Locked locked(*this);
  if (!locked.status()) return locked.status();
  return read_to_ < bytes_max_ ? ok_status() : compact(now);
}

Result<Journal::Begun> Journal::begin(const std::string& operation, const JournalEntry& entry, IfEnded if_ended,
                                      const Check& check) {
  if (const Status room = make_room(entry.begun); !room) return room.fault();
  const Locked locked(*this);
  if (!locked.status()) return locked.status().fault();
  JournalEntry wanted = entry;
  if (const auto it = entries_.find(operation); it != entries_.end()) {
    const JournalEntry& found = it->second;
    const bool anew = is_over(found, entry.begun) || (found.ended && if_ended == IfEnded::begin_anew);
    if (!anew) {
      if (const Status good = check ? check(found) : ok_status(); !good) return good.fault();
      return go_on(operation, found, entry.begun);
    }
    wanted.run = found.run + 1; // the caller's own key may be the same one
  }
  // Dropping an operation to make room could mean doing it twice.
  if (read_to_ >= bytes_max_) {
    return unavailable(
        fmt::format("the journal {} is full: it remembers {} operations. Nothing was sent. Use several journals, or a "
                    "shorter key lifetime if the server forgets keys earlier",
                    path_, entries_.size()));
  }
  if (const Status added = append(begin_line(operation, wanted)); !added) return added.fault();
  return Begun{wanted, false};
}

// Allowed in a full journal too: compacting makes one line of all the runs of an operation.
Result<Journal::Begun> Journal::go_on(const std::string& operation, JournalEntry found, Time now) {
  if (found.ended && is_success(found.ended->status)) return Begun{std::move(found), true};
  ++found.run;
  if (const Status added = append(begin_line(operation, found)); !added) return added.fault();
  if (const Status compacted = compact_if_worthwhile(now); !compacted) return compacted.fault();
  return Begun{std::move(found), true};
}

Result<bool> Journal::close(const std::string& operation, std::string_view key, std::optional<std::uint64_t> only_run,
                            const std::string& line, Time now) {
  const Locked locked(*this);
  if (!locked.status()) return locked.status().fault();
  const auto it = entries_.find(operation);
  if (it == entries_.end() || it->second.key != key) return false;
  if (only_run && it->second.run != *only_run) return false;
  if (const Status added = append(line); !added) return added.fault();
  if (const Status compacted = compact_if_worthwhile(now); !compacted) return compacted.fault();
  return true;
}

Result<bool> Journal::end(const std::string& operation, std::string_view key, const JournalEnd& how,
                          std::optional<std::uint64_t> only_run) {
  return close(operation, key, only_run, end_line(operation, key, how), how.at);
}

Result<bool> Journal::forget(const std::string& operation, std::string_view key, Time now,
                             std::optional<std::uint64_t> only_run) {
  return close(operation, key, only_run, sealed(fmt::format("forget {} {}", operation, key)), now);
}

Result<std::optional<JournalEntry>> Journal::find(const std::string& operation) {
  const Locked locked(*this);
  if (!locked.status()) return locked.status().fault();
  const auto it = entries_.find(operation);
  if (it == entries_.end()) return std::optional<JournalEntry>();
  return std::optional<JournalEntry>(it->second);
}

} // namespace oncekey
