#include "store/journal/backup.h"

#include "base/faults.h"
#include "base/private_files.h"
#include "store/common/store_note.h"
#include "store/journal/examine.h"
#include "store/journal/folder_lock.h"
#include "store/journal/meta.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNoteBegin = "oncekey backup ";
constexpr std::uint64_t kNoteFormat = 1;
// A name of a hundred bytes for each of a million files.
constexpr std::size_t kNoteBytesMax = std::size_t{256} << 20;
constexpr std::size_t kCopiedAtOnce = std::size_t{1} << 20;

Fault step_failed(std::string_view doing, const std::string& path) {
  const bool no_room = errno == ENOSPC || errno == EDQUOT;
  return unavailable(fmt::format("{} {} failed: {}{}", doing, path, std::strerror(errno),
                                 no_room ? "; make room there, or choose another disk" : ""));
}

Fault given_up() { return Fault{FaultKind::conflict, "it was given up before it was whole; nothing is left of it"}; }

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool sync_folder(const std::string& path) { return sync_folder_of(path + "/."); }

// RocksDB's tables and the large bodies are written once and never changed.
bool never_changes(std::string_view name) { return name.ends_with(".sst") || name.starts_with("bodies/"); }

struct Closing {
  int file = -1;
  ~Closing() {
    if (file >= 0) ::close(file);
  }
};

// How far a copy has come, over all its files.
struct CopyCount {
  const TellProgress& tell;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  bool add(std::uint64_t bytes) {
    done += bytes;
    return !tell || tell(std::min(done, total), total);
  }
};

enum class Linking { no, yes };

// The file with its size and checksum, at `to`, durable.
Result<BackupFile> copy_file(const std::string& from, const std::string& to, const std::string& name, Linking linking,
                             CopyCount& count) {
  const Closing source{::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (source.file < 0) return step_failed("reading", from);
  Closing target;
  if (linking == Linking::no || ::link(from.c_str(), to.c_str()) != 0) {
    target.file = ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (target.file < 0) return step_failed("making", to);
  }
  BackupFile copied{name};
  std::string piece(kCopiedAtOnce, '\0');
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  for (;;) {
    const ssize_t got = ::read(source.file, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return step_failed("reading", from);
    if (got == 0) break;
    const std::string_view bytes(piece.data(), static_cast<std::size_t>(got));
    XXH3_64bits_update(hash.get(), bytes.data(), bytes.size());
    copied.bytes += bytes.size();
    if (target.file >= 0) {
      if (const int error = write_all(target.file, bytes); error != 0) {
        errno = error;
        return step_failed("writing", to);
      }
    }
    if (!count.add(bytes.size())) return given_up();
  }
  copied.checksum = XXH3_64bits_digest(hash.get());
  if (target.file >= 0 && ::fsync(target.file) != 0) return step_failed("syncing", to);
  return copied;
}

// A folder under another name until it is whole. What is not finished is removed.
class PartialFolder {
 public:
  explicit PartialFolder(const std::string& path) : path_(path), partial_(path + ".partial") {}
  ~PartialFolder() {
    std::error_code stays;
    if (made_) fs::remove_all(partial_, stays);
  }
  PartialFolder& operator=(PartialFolder&&) = delete;

  Status make() {
    if (::mkdir(partial_.c_str(), S_IRWXU) != 0) return step_failed("making", partial_);
    made_ = true;
    return ok_status();
  }
  const std::string& path() const { return partial_; }
  // With the folders above it.
  Result<std::string> path_for(const std::string& name) {
    const std::string folder = fs::path(name).parent_path().native();
    if (!folder.empty() && folders_.insert(folder).second && ::mkdir((partial_ + "/" + folder).c_str(), S_IRWXU) != 0)
      return step_failed("making", partial_ + "/" + folder);
    return partial_ + "/" + name;
  }
  // Everything in it is durable; it gets its name.
  Status finish() {
    for (const std::string& folder : folders_) {
      if (!sync_folder(partial_ + "/" + folder)) return step_failed("syncing", partial_ + "/" + folder);
    }
    if (!sync_folder(partial_)) return step_failed("syncing", partial_);
    // Not over what another process has put there meanwhile.
    if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0 &&
        (errno != EINVAL || ::access(path_.c_str(), F_OK) == 0 || ::rename(partial_.c_str(), path_.c_str()) != 0))
      return step_failed("naming", path_);
    made_ = false;
    if (!sync_folder_of(path_)) return step_failed("syncing the folder of", path_);
    return ok_status();
  }

 private:
  const std::string path_;
  const std::string partial_;
  bool made_ = false;
  std::set<std::string> folders_;
};

// "bodies/x", and nothing that leads elsewhere.
bool is_file_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return !name.empty() && name[0] != '.';
  const std::string folder = name.substr(0, slash);
  const std::string file = name.substr(slash + 1);
  return (folder == "log" || folder == "bodies") && !file.empty() && file[0] != '.' &&
         file.find('/') == std::string::npos;
}

} // namespace

BackupMade BackupNote::as_made(const std::string& folder) const {
  BackupMade as{folder, store, sequence, made, in_progress, files.size(), 0};
  for (const BackupFile& file : files) as.bytes += file.bytes;
  return as;
}

std::string encode_backup_note(const BackupNote& note) {
  std::string text = fmt::format("{}{}\nstore {}\nsequence {}\nmade {}\nin_progress {}\n", kNoteBegin, kNoteFormat,
                                 note.store, note.sequence, note.made.time_since_epoch().count(), note.in_progress);
  for (const BackupFile& file : note.files)
    text += fmt::format("file {} {:016x} {}\n", file.bytes, file.checksum, file.name);
  return text + fmt::format("end {:016x}\n", XXH3_64bits(text.data(), text.size()));
}

Result<BackupNote> decode_backup_note(std::string_view text, const std::string& path) {
  const auto damaged = [&](std::string_view how) {
    return corrupt(fmt::format("{} is damaged: {}; use another backup", path, how));
  };
  const std::optional<std::uint64_t> format = format_number_in(text, kNoteBegin);
  if (!format || *format == 0) return damaged("it is not a backup's");
  if (*format > kNoteFormat) return newer_format(path, *format, kNoteFormat);
  std::istringstream words{std::string(text.substr(text.find('\n') + 1))};
  std::string word;
  BackupNote note;
  std::int64_t made = 0;
  std::string names[4];
  words >> names[0] >> note.store >> names[1] >> note.sequence >> names[2] >> made >> names[3] >> note.in_progress;
  if (!words || names[0] != "store" || names[1] != "sequence" || names[2] != "made" || names[3] != "in_progress")
    return damaged("its first lines have the wrong shape");
  note.made = Time{Millis{made}};
  while (words >> word && word == "file") {
    BackupFile file;
    words >> file.bytes >> std::hex >> file.checksum >> std::dec >> file.name;
    if (!words || !is_file_name(file.name)) return damaged("a line about a file has the wrong shape");
    note.files.push_back(std::move(file));
  }
  if (word != "end" || encode_backup_note(note) != text) return damaged("it is not whole");
  return note;
}

Result<std::optional<BackupNote>> read_backup_note(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kBackupFile);
  struct stat found {};
  const std::size_t most = ::stat(path.c_str(), &found) == 0
                               ? std::min<std::size_t>(kNoteBytesMax, static_cast<std::size_t>(found.st_size))
                               : 0;
  const Result<std::optional<std::string>> text = read_file_if_there(path, most);
  if (!text) return text.fault();
  if (!*text) return std::optional<BackupNote>();
  Result<BackupNote> note = decode_backup_note(**text, path);
  if (!note) return std::move(note).fault();
  return std::optional<BackupNote>(*std::move(note));
}

Status check_new_folder(const std::string& folder) {
  const std::string path = without_slash(folder);
  struct stat found {};
  if (path.empty()) return invalid("a folder to make is needed");
  if (::lstat(path.c_str(), &found) == 0) return invalid(fmt::format("{} exists already: give a new name", path));
  if (::lstat((path + ".partial").c_str(), &found) == 0) {
    return invalid(
        fmt::format("{}.partial exists: it is left of a copy that was cut off, or of one that is being made; remove it "
                    "in the first case",
                    path));
  }
  const std::string above = fs::path(path).parent_path().native();
  if (!above.empty() && (::stat(above.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)))
    return invalid(fmt::format("there is no folder {}: make it first", above));
  return ok_status();
}

Result<std::vector<std::string>> files_of_store(const std::string& folder) {
  std::vector<std::string> names;
  const auto belongs = [](const std::string& name) {
    return is_file_name(name) && name != kLockFile && name != "LOG" && !name.starts_with("LOG.old") &&
           name != "admin-token" && name != kLossAcceptedFile && name != kBackupFile && !name.ends_with(".new") &&
           !name.ends_with(".unfinished") && !name.ends_with(".dbtmp");
  };
  for (const std::string sub : {"", "log/", "bodies/"}) {
    std::error_code error;
    for (fs::directory_iterator at(folder + "/" + sub, error), end; !error && at != end; at.increment(error)) {
      std::error_code unknown;
      const std::string name = sub + at->path().filename().native();
      if (at->is_regular_file(unknown) && belongs(name)) names.push_back(name);
    }
    if (error && (sub.empty() || error != std::errc::no_such_file_or_directory))
      return unavailable(fmt::format("{}/{} cannot be read: {}", folder, sub, error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<BackupMade> make_backup(const std::string& from, const std::vector<std::string>& names, BackupNote note,
                               const std::string& to, const TellProgress& tell) {
  const std::string folder = without_slash(to);
  if (const Status free = check_new_folder(folder); !free) return free.fault();
  CopyCount count{tell};
  for (const std::string& name : names) {
    std::error_code unknown;
    count.total += fs::file_size(from + "/" + name, unknown);
  }
  PartialFolder partial(folder);
  if (const Status made = partial.make(); !made) return made.fault();
  for (const std::string& name : names) {
    const Result<std::string> path = partial.path_for(name);
    if (!path) return path.fault();
    const Linking linking = never_changes(name) ? Linking::yes : Linking::no;
    Result<BackupFile> copied = copy_file(from + "/" + name, *path, name, linking, count);
    if (!copied) return std::move(copied).fault();
    note.files.push_back(*std::move(copied));
  }
  const Status noted =
      replace_private_file(fmt::format("{}/{}", partial.path(), kBackupFile), encode_backup_note(note), Sync::yes);
  if (!noted) return noted.fault();
  if (const Status finished = partial.finish(); !finished) return finished.fault();
  return note.as_made(folder);
}

Result<BackupMade> back_up_journal(const std::string& folder, const std::string& to, const TellProgress& tell) {
  const Result<FolderLock> lock = FolderLock::take(folder);
  if (!lock) return lock.fault();
  // Opened and read back as a start would: what cannot be opened is no backup.
  const Result<StoreReport> report = examine_journal(folder, {.depth = Depth::numbers});
  if (!report) return report.fault();
  if (!report->sound())
    return corrupt(fmt::format("{}; {}", report->problems.front().what, report->problems.front().next));
  BackupNote note{report->details.id, report->details.newest_sequence,
                  std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now()), report->in_progress};
  // A backup of what was restored and never accepted knows no more than the first one.
  if (report->backup) note.made = std::min(note.made, report->backup->made);
  const Result<std::vector<std::string>> names = files_of_store(folder);
  if (!names) return names.fault();
  return make_backup(folder, *names, std::move(note), to, tell);
}

Result<BackupMade> restore_journal(const std::string& backup, const std::string& folder, const TellProgress& tell) {
  const Result<std::optional<BackupNote>> note = read_backup_note(backup);
  if (!note) return note.fault();
  if (!*note) {
    return invalid(
        fmt::format("{} is not a whole backup: it has no file named {}; a backup is made by: oncekey store "
                    "backup",
                    backup, kBackupFile));
  }
  const std::string path = without_slash(folder);
  if (const Status free = check_new_folder(path); !free) return free.fault();
  CopyCount count{tell};
  for (const BackupFile& file : (*note)->files) count.total += file.bytes;
  PartialFolder partial(path);
  if (const Status made = partial.make(); !made) return made.fault();
  for (const BackupFile& file : (*note)->files) {
    const Result<std::string> to = partial.path_for(file.name);
    if (!to) return to.fault();
    const Result<BackupFile> copied = copy_file(backup + "/" + file.name, *to, file.name, Linking::no, count);
    if (!copied) return copied.fault();
    if (copied->bytes != file.bytes || copied->checksum != file.checksum) {
      return corrupt(
          fmt::format("{}/{} is damaged: it does not have the content that was backed up; nothing was "
                      "restored, use another backup",
                      backup, file.name));
    }
  }
  // The file changes once the store has its name: the restore itself is an action for the audit log.
  BackupNote kept = **note;
  std::erase_if(kept.files, [](const BackupFile& file) { return file.name == name_of(StoreNote::audit_pending); });
  const Status noted =
      replace_private_file(fmt::format("{}/{}", partial.path(), kBackupFile), encode_backup_note(kept), Sync::yes);
  if (!noted) return noted.fault();
  const Result<StoreReport> report = examine_journal(partial.path(), {.depth = Depth::numbers});
  if (!report) return report.fault();
  if (!report->sound()) {
    const StoreProblem& first = report->problems.front();
    return corrupt(fmt::format("the backup {} cannot be opened: {}; {}", backup, first.what, first.next));
  }
  if (const Status finished = partial.finish(); !finished) return finished.fault();
  return (*note)->as_made(path);
}

} // namespace oncekey
