// What a JournalStore does about its memory: the witness it keeps, and the loss it finds when it is opened.
#include "base/crypto.h"
#include "base/durations.h"
#include "base/private_files.h"
#include "store/journal/folder_lock.h"
#include "store/journal/journal_store.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace oncekey {
namespace {

// An operator's note in the store's folder. Only the owner of the folder and root can leave one.
std::string note_path(const std::string& folder) { return fmt::format("{}/{}", folder, kLossAcceptedFile); }

// Whether a process has the store open. RocksDB holds a record lock on this file.
bool in_use(const std::string& folder) {
  const int fd = ::open(fmt::format("{}/{}", folder, kLockFile).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool locked = ::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(fd);
  return locked;
}

// The maintenance thread looks once a second.
constexpr std::chrono::milliseconds kNotePoll{50};
constexpr int kNotePolls = 200;

} // namespace

StoreAt JournalStore::at() const {
  const std::unique_lock lock = journal_->lock();
  return {hex_encode({reinterpret_cast<const char*>(meta_.id.data()), meta_.id.size()}), journal_->durable()};
}

Status JournalStore::look_for_loss() {
  const Result<std::optional<std::string>> noted = entries_->read(kLossKey);
  if (!noted) return noted.fault();
  std::optional<std::string> missing = *noted;
  const Result<std::optional<StoreAt>> witness = witness_.read();
  if (witness && *witness && !missing) missing = what_is_missing(**witness, at());
  const Result<std::optional<BackupNote>> backup = read_backup_note(folder_);
  if (!backup) return backup.fault();
  is_backup_ = backup->has_value();
  if (is_backup_ && !*noted) {
    const std::string forgotten = fmt::format(
        "it is a backup made at {}: keys that were claimed after that are not in it, and {} that were in progress then "
        "may have been answered since",
        iso_time((*backup)->made), (*backup)->in_progress);
    missing = missing ? fmt::format("{}; {}", forgotten, *missing) : forgotten;
  }
  if (!missing) {
    if (!witness || (!*witness && !meta_.made_now)) {
      log_.warning("witness_missing",
                   {{"path", witness_.path()},
                    {"reason", witness ? "there is no such file" : witness.fault().message},
                    {"meaning", "if the store's folder is an older copy, this start cannot notice it"}});
    }
    return ok_status();
  }
  loss_ = Fault{FaultKind::conflict,
                fmt::format("the store at {} has lost its memory: {}. Retries of requests it has forgotten would be "
                            "executed again, so none is executed. Put the newest folder back, or find out what was "
                            "lost and then say so with: oncekey store accept-loss --store journal:{}",
                            folder_, *missing, folder_)};
  forgetful_ = true;
  if (::access(note_path(folder_).c_str(), F_OK) == 0) return accept_loss();
  log_.error("memory_lost", {{"store", folder_}, {"reason", loss_->message}});
  if (*noted) return ok_status();
  // What goes on being written makes up for the number that was missing: the next start must still know.
  const std::unique_lock lock = journal_->lock();
  const Status begun = begin_step(1, kLossKey.size() + missing->size());
  if (begun) journal_->put(kStoreFamily, kLossKey, *missing);
  return begun;
}

// The operator's note goes last: a crash anywhere before leaves it, and the next start takes it up again.
Status JournalStore::accept_loss() {
  const StoreAt now = at();
  if (const Status written = witness_.write(now); !written) return written;
  witnessed_ = now.sequence;
  const std::unique_lock lock = journal_->lock();
  if (const Status begun = begin_step(1, kLossKey.size()); !begun) return begun;
  journal_->erase(kStoreFamily, kLossKey);
  accepting_loss_ = true;
  journal_->when_durable(journal_->newest(), [this] {
    forgetful_.store(false, std::memory_order_release);
    log_.always("memory_loss_accepted", {{"store", folder_}});
    // From here on the folder is a store like any other.
    const std::string backup = fmt::format("{}/{}", folder_, kBackupFile);
    if (is_backup_ && ::unlink(backup.c_str()) != 0 && errno != ENOENT)
      log_.error("memory_loss_note_stays", {{"path", backup}, {"reason", std::strerror(errno)}});
    if (::unlink(note_path(folder_).c_str()) == 0) return;
    log_.error("memory_loss_note_stays", {{"path", note_path(folder_)}, {"reason", std::strerror(errno)}});
  });
  journal_->flush();
  return ok_status();
}

void JournalStore::answer_operator() {
  if (::access(note_path(folder_).c_str(), F_OK) != 0) return;
  if (!forgetful_.load(std::memory_order_acquire)) {
    // A note that nothing was lost for must not stay for a later loss.
    ::unlink(note_path(folder_).c_str());
    return;
  }
  if (accepting_loss_) return;
  const Status accepted = accept_loss();
  if (!accepted && !std::exchange(witness_failed_, true)) {
    log_.error("memory_loss_not_accepted", {{"store", folder_}, {"reason", accepted.fault().message}});
  }
}

void JournalStore::keep_witness() {
  // The witness of what was lost stays until the loss is accepted or the lost folder is back. One that was not compared
  // yet may be the only one to know of a loss.
  if (!compared_ || forgetful_.load(std::memory_order_relaxed)) return;
  const StoreAt now = at();
  if (witnessed_ == now.sequence) return;
  const Status written = witness_.write(now);
  if (written) {
    witnessed_ = now.sequence;
  } else if (!std::exchange(witness_failed_, true)) {
    log_.warning("witness_not_written",
                 {{"reason", written.fault().message},
                  {"meaning", "an older copy of the store's folder would not be noticed"},
                  {"next",
                   "let the store's user write in the folder above the store, or put the store one folder "
                   "further down"}});
  }
}

void JournalStore::catch_up_with_wall() {
  if (!clock_->left_out()) return;
  const std::unique_lock no_writes = journal_->lock();
  if (writes_ != 0) {
    clock_->leave_out();
  } else if (clock_->catch_up()) {
    log_.info("clock_caught_up", {{"reason", "the kernel says that the wall clock is synchronised"}});
  }
}

Result<LossAcceptance> accept_lost_memory_journal(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder + "/CURRENT", error)) {
    return invalid(fmt::format("there is no store at {}", folder));
  }
  const std::string note = note_path(folder);
  if (const Status left = replace_private_file(note, "", Sync::yes); !left) return left.fault();
  for (int poll = 0; poll < kNotePolls && in_use(folder); ++poll) {
    if (::access(note.c_str(), F_OK) != 0) return LossAcceptance::taken;
    std::this_thread::sleep_for(kNotePoll);
  }
  if (::access(note.c_str(), F_OK) != 0) return LossAcceptance::taken;
  if (!in_use(folder)) return LossAcceptance::noted;
  return unavailable(
      fmt::format("the process that has the store at {} open has not taken the note {} up: its log says "
                  "why",
                  folder, note));
}

} // namespace oncekey
