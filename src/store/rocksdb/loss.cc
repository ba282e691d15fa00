// What a RocksdbStore does about its memory: the witness it keeps, and the loss it finds when it is opened.
#include "base/crypto.h"
#include "base/private_files.h"
#include "store/rocksdb/rocksdb_store.h"

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
std::string note_path(const std::string& folder) { return folder + "/accept-loss"; }

// Whether a process has the store open. RocksDB holds a record lock on this file.
bool in_use(const std::string& folder) {
  const int fd = ::open((folder + "/LOCK").c_str(), O_RDWR | O_CLOEXEC);
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

StoreAt RocksdbStore::at() const {
  // Everything the writer has finished is durable, and readers see no batch before it is.
  return {hex_encode({reinterpret_cast<const char*>(meta_.id.data()), meta_.id.size()}),
          db_->GetLatestSequenceNumber()};
}

Status RocksdbStore::look_for_loss() {
  std::optional<std::string> missing = meta_.loss;
  const Result<std::optional<StoreAt>> witness = witness_.read();
  if (witness && *witness && !missing) missing = what_is_missing(**witness, at());
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
                            "lost and then say so with: oncekey store accept-loss --store rocksdb:{}",
                            folder_, *missing, folder_)};
  forgetful_ = true;
  if (::access(note_path(folder_).c_str(), F_OK) == 0) return accept_loss();
  log_.error("memory_lost", {{"store", folder_}, {"reason", loss_->message}});
  if (!meta_.loss) loss_to_note_ = std::move(missing);
  note_loss();
  return ok_status();
}

// What goes on being written makes up for the number that was missing: the next start must still know. On a full disk
// the next round of maintenance tries again.
void RocksdbStore::note_loss() {
  if (!loss_to_note_) return;
  if (db_->Put(durably(), slice_of(kLossKey), *loss_to_note_).ok()) loss_to_note_.reset();
}

// The note goes last: a crash anywhere before leaves it, and the next start takes it up again.
Status RocksdbStore::accept_loss() {
  const StoreAt now = at();
  if (const Status written = witness_.write(now); !written) return written;
  witnessed_ = now.sequence;
  const rocksdb::Status cleared = db_->Delete(durably(), slice_of(kLossKey));
  if (!cleared.ok()) return fault_of(cleared, "the acceptance of the loss could not be written down");
  loss_to_note_.reset();
  forgetful_.store(false, std::memory_order_release);
  log_.always("memory_loss_accepted", {{"store", folder_}});
  if (::unlink(note_path(folder_).c_str()) != 0) {
    return unavailable(fmt::format("{} cannot be removed: {}", note_path(folder_), std::strerror(errno)));
  }
  return ok_status();
}

void RocksdbStore::answer_operator() {
  if (::access(note_path(folder_).c_str(), F_OK) != 0) return;
  if (!forgetful_.load(std::memory_order_relaxed)) {
    // A note that nothing was lost for must not stay for a later loss.
    ::unlink(note_path(folder_).c_str());
    return;
  }
  const Status accepted = accept_loss();
  if (!accepted && !std::exchange(witness_failed_, true)) {
    log_.error("memory_loss_not_accepted", {{"store", folder_}, {"reason", accepted.fault().message}});
  }
}

void RocksdbStore::keep_witness() {
  // The witness of what was lost stays until the loss is accepted or the lost folder is back.
  if (forgetful_.load(std::memory_order_relaxed)) return;
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

void RocksdbStore::catch_up_with_wall() {
  if (!clock_.left_out()) return;
  const std::unique_lock no_batch = buckets_.pin();
  if (writer_->writes() != 0) {
    clock_.leave_out();
  } else if (clock_.catch_up()) {
    log_.info("clock_caught_up", {{"reason", "the kernel says that the wall clock is synchronised"}});
  }
}

Result<LossAcceptance> accept_lost_memory_rocksdb(const std::string& folder) {
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
