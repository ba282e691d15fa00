// What a JournalStore says about itself as a whole, and the copy of it while calls go on.
#include "base/crypto.h"
#include "base/private_files.h"
#include "store/journal/journal_store.h"

#include <fmt/format.h>
#include <rocksdb/utilities/checkpoint.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

Fault snapshot_failed(std::string_view doing, const std::string& path) {
  return unavailable(fmt::format("{} {} failed: {}", doing, path, std::strerror(errno)));
}

// A segment with the first bytes of another and zeros behind them: as a log that ends there.
Status copy_segment(const std::string& from, const std::string& to, std::uint64_t bytes, std::uint64_t segment_bytes) {
  std::string content(segment_bytes, '\0');
  if (bytes > 0) {
    const int file = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return snapshot_failed("reading", from);
    std::uint64_t got = 0;
    while (got < bytes) {
      const ssize_t part = ::pread(file, content.data() + got, bytes - got, static_cast<off_t>(got));
      if (part < 0 && errno == EINTR) continue;
      if (part <= 0) break;
      got += static_cast<std::uint64_t>(part);
    }
    ::close(file);
    if (got < bytes) return snapshot_failed("reading", from);
  }
  return replace_private_file(to, content, Sync::no);
}

// Removes the snapshot whatever happens.
class SnapshotFolder {
 public:
  explicit SnapshotFolder(std::string path) : path_(std::move(path)) { remove(); }
  ~SnapshotFolder() { remove(); }
  SnapshotFolder& operator=(SnapshotFolder&&) = delete;
  const std::string& path() const { return path_; }

 private:
  void remove() const {
    std::error_code stays;
    fs::remove_all(path_, stays);
    fs::remove_all(path_ + ".tmp", stays); // RocksDB's, while it makes one
  }
  const std::string path_;
};

} // namespace

StoreDetails JournalStore::details() const {
  StoreDetails details;
  details.id = at().id;
  for (const auto& [buckets, holds] : {std::pair{&buckets_, "keys"}, std::pair{&job_buckets_, "jobs"}}) {
    const std::shared_ptr<const BucketList> live = buckets->live();
    for (const Bucket& bucket : *live) {
      StoreBucket shown{to_string(bucket.id), holds, bucket.id.end()};
      std::uint64_t value = 0;
      // Beside a record stands its entry in the index by text, beside a job's state its message.
      if (db_->GetIntProperty(bucket.family.get(), rocksdb::DB::Properties::kEstimateNumKeys, &value))
        shown.records = value / 2;
      if (db_->GetIntProperty(bucket.family.get(), rocksdb::DB::Properties::kTotalSstFilesSize, &value))
        shown.bytes = value;
      details.buckets.push_back(std::move(shown));
    }
  }
  std::sort(details.buckets.begin(), details.buckets.end(),
            [](const StoreBucket& a, const StoreBucket& b) { return a.ends < b.ends; });
  details.log_segments = segments_->numbers().size();
  const std::unique_lock lock = journal_->lock();
  details.newest_sequence = journal_->durable();
  return details;
}

Result<BackupMade> JournalStore::back_up(const std::string& folder, const TellProgress& tell) {
  const std::unique_lock one(backup_mutex_, std::try_to_lock);
  if (!one.owns_lock()) return Fault{FaultKind::conflict, "another backup of this store is being made"};
  if (const Status health = journal_->healthy(); !health) return health.fault();
  if (const Status free = check_new_folder(folder); !free) return free.fault();
  const SnapshotFolder snapshot(fmt::format("{}/{}", folder_, kSnapshotFolder));
  Result<BackupNote> note = take_snapshot(snapshot.path());
  if (!note) return std::move(note).fault();
  const Result<std::vector<std::string>> names = files_of_store(snapshot.path());
  if (!names) return names.fault();
  return make_backup(snapshot.path(), *names, *std::move(note), folder, tell);
}

// Of one moment: the cut of the log. What is sealed belongs to it because nothing is sealed until the snapshot is made.
// Files of bodies may be newer, and are never older: an entry is written after its file, and no file is swept
// meanwhile.
Result<BackupNote> JournalStore::take_snapshot(const std::string& snapshot) {
  const std::lock_guard no_sweep(maintenance_mutex_);
  BackupNote note;
  note.store = at().id;
  note.made = std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
  if (is_backup_ && forgetful_.load()) {
    // It knows no more than the backup that it was made of.
    const Result<std::optional<BackupNote>> before = read_backup_note(folder_);
    if (before && *before) note.made = std::min(note.made, (*before)->made);
  }
  {
    const std::unique_lock no_sealing = sorted_->pin();
    const Result<LogEnd> sealed = read_sealed_mark(*db_);
    if (!sealed) return sealed.fault();
    SegmentedLog::Cut cut;
    {
      const std::unique_lock lock = journal_->lock();
      cut = journal_->cut();
      note.in_progress = unsettled_.in_progress();
    }
    note.sequence = cut.end.sequence;

    rocksdb::Checkpoint* made = nullptr;
    rocksdb::Status status = rocksdb::Checkpoint::Create(db_.get(), &made);
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    if (status.ok()) status = checkpoint->CreateCheckpoint(snapshot);
    if (!status.ok()) return fault_of(status, "a snapshot of the sorted files could not be made");
    if (const Status private_now = make_folder_private(snapshot); !private_now) return private_now.fault();

    const std::string log = snapshot + "/log";
    if (::mkdir(log.c_str(), S_IRWXU) != 0) return snapshot_failed("making", log);
    const auto copy = [&](std::uint32_t number, std::uint64_t bytes) {
      const std::string name = segment_name(number);
      return copy_segment(fmt::format("{}/log/{}", folder_, name), fmt::format("{}/{}", log, name), bytes,
                          segments_->segment_bytes());
    };
    std::size_t copied = 0;
    for (const SegmentedLog::Cut::Part& part : cut.segments) {
      if (part.epoch <= sealed->epoch) continue; // its content is in the sorted files, and it is used again
      if (const Status done = copy(part.number, part.bytes); !done) return done.fault();
      ++copied;
    }
    if (copied == 0) {
      if (const Status done = copy(0, 0); !done) return done.fault();
    }
  }

  const std::string bodies = snapshot + "/bodies";
  if (::mkdir(bodies.c_str(), S_IRWXU) != 0) return snapshot_failed("making", bodies);
  std::error_code error;
  for (fs::directory_iterator file(folder_ + "/bodies", error), end; !error && file != end; file.increment(error)) {
    if (file->path().extension() == ".new") continue;
    const std::string to = bodies + "/" + file->path().filename().native();
    if (::link(file->path().c_str(), to.c_str()) == 0) continue;
    fs::copy_file(file->path(), to, error);
  }
  if (error) return unavailable(fmt::format("the bodies could not be copied: {}", error.message()));
  for (const std::string_view name : {kMetaFile, kSecretFile, std::string_view("identity")}) {
    constexpr std::size_t kSmallFileMax = 16u << 20;
    const Result<std::optional<std::string>> content =
        read_file_if_there(fmt::format("{}/{}", folder_, name), kSmallFileMax);
    if (!content) return content.fault();
    if (!*content) continue;
    const Status written = replace_private_file(fmt::format("{}/{}", snapshot, name), **content, Sync::no);
    if (!written) return written.fault();
  }
  return note;
}

} // namespace oncekey
