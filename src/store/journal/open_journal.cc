// Opening a JournalStore: everything that may be wrong with a directory is said here in words.
#include "base/private_files.h"
#include "store/journal/journal_store.h"
#include "store/journal/tuning.h"

#include <fmt/format.h>

#include <rocksdb/listener.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

Status prepare_directory(const std::string& path) {
  if (const Status made = make_private_folder(path); !made) return made;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return invalid(fmt::format("the store path {} is a file; a store needs a directory of its own", path));
  }
  if (::access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    return unavailable(fmt::format("the store directory {} cannot be written: {}", path, std::strerror(errno)));
  }
  return make_folder_private(path);
}

// Opening writes a log, a manifest and its options. RocksDB does not get over a disk that is full at that moment: it
// ends the process by an assertion, where we want to say what is wrong.
constexpr std::uint64_t kRoomToOpenBytes = 8u << 20;

Status check_room(rocksdb::Env& env, const std::string& path) {
  std::uint64_t free = 0;
  // Where the file system does not tell, opening will.
  if (!env.GetFreeSpace(path, &free).ok() || free >= kRoomToOpenBytes) return ok_status();
  return unavailable(
      fmt::format("the disk of the store at {} is full: {} KiB are free and {} MiB are needed to open it", path,
                  free >> 10, kRoomToOpenBytes >> 20));
}

Fault opening_fault(const rocksdb::Status& status, const std::string& path) {
  const std::string text = status.ToString();
  if (status.IsIOError() && text.find("lock") != std::string::npos) {
    return Fault{FaultKind::conflict,
                 fmt::format("the store at {} is in use by another process; a directory belongs to one oncekey at a "
                             "time: stop the other one, or give this one a directory of its own",
                             path)};
  }
  if (status.IsCorruption()) {
    return corrupt(
        fmt::format("the store at {} is damaged and is not opened, since records may be missing: {}; "
                    "restore a backup, or move the directory away to start with an empty store",
                    path, text));
  }
  return unavailable(fmt::format("the store at {} cannot be opened: {}", path, text));
}

// Files that could not be merged are as good as merged ones: the error must not stop the database, which would take up
// no more segments.
class GoesOnUnmerged final : public rocksdb::EventListener {
 public:
  explicit GoesOnUnmerged(Log& log) : log_(log) {}
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* error) override {
    if (reason != rocksdb::BackgroundErrorReason::kCompaction) return;
    log_.seldom(LogLevel::error, "files_not_merged", "compaction", {{"reason", error->ToString()}});
    *error = rocksdb::Status::OK();
  }

 private:
  Log& log_;
};

// The families of an existing database, the default one for a new one.
Result<std::vector<std::string>> family_names(const rocksdb::DBOptions& options, const std::string& path) {
  if (options.env->FileExists(path + "/CURRENT").IsNotFound()) return std::vector{rocksdb::kDefaultColumnFamilyName};
  std::vector<std::string> names;
  const rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(options, path, &names);
  if (!listed.ok()) return opening_fault(listed, path);
  return names;
}

// Into the database and the buckets of `opened`.
Status open_database(const rocksdb::DBOptions& options, const std::string& path, OpenedDatabase& opened) {
  const Result<std::vector<std::string>> names = family_names(options, path);
  if (!names) return names.fault();
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  std::vector<std::optional<BucketId>> ids; // nothing for the default family
  const auto of_jobs = [](const std::string& name) { return name.starts_with(kJobFamilies); };
  for (const std::string& name : *names) {
    const bool is_default = name == rocksdb::kDefaultColumnFamilyName;
    const std::string_view bucket = std::string_view(name).substr(of_jobs(name) ? kJobFamilies.size() : 0);
    const std::optional<BucketId> id = is_default ? std::nullopt : bucket_from_name(bucket);
    if (!is_default && !id) {
      return Fault{
          FaultKind::newer_format,
          fmt::format(
              "the store at {} has a part named \"{}\" that this version of oncekey (store format {}) "
              "does not know: it was written by a newer oncekey or by another program; run the version that wrote it",
              path, name, kStoreFormat)};
    }
    families.emplace_back(name, opened.bucket_options);
    ids.push_back(id);
  }

  rocksdb::DB* raw = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, families, &handles, &raw);
  if (!status.ok()) return opening_fault(status, path);
  opened.db.reset(raw);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (!ids[i]) {
      raw->DestroyColumnFamilyHandle(handles[i]);
      continue;
    }
    const auto destroy = [raw](rocksdb::ColumnFamilyHandle* family) { raw->DestroyColumnFamilyHandle(family); };
    (of_jobs((*names)[i]) ? opened.job_buckets : opened.buckets).push_back({*ids[i], {handles[i], destroy}});
  }
  return ok_status();
}

std::string log_folder(const std::string& store) { return store + "/log"; }

constexpr std::chrono::seconds kTryEvery{1};

// WaitingStore: stands in for an embedded store whose disk was too full to open it.
//
// A full disk must not keep the gateway down: requests without a key need no store. So the gateway starts with this,
// which refuses every call with the reason, tries to open the real store once a second, and passes every call on to it
// from then on. Nothing is executed meanwhile, and nothing is answered from a store that was not read.
class WaitingStore final : public Store {
 public:
  using Open = std::function<Result<std::unique_ptr<Store>>()>;

  // `secret` is that of the store, which can be read while the rest cannot be opened.
  WaitingStore(const Secret& secret, Fault reason, Open open, Log& log)
      : secret_(secret), reason_(std::move(reason)), open_(std::move(open)), log_(log) {
    thread_ = std::jthread([this](const std::stop_token& stop) { try_until_open(stop); });
  }

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override { pass(&Store::claim, done, std::move(request)); }
  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override {
    pass(&Store::find, done, id, interest);
  }
  void by_fence(FenceCall call) override {
    if (Store* const store = opened()) return store->by_fence(std::move(call));
    call.done(reason_);
  }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override {
    pass(&Store::operate, done, id, action, std::move(response));
  }
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override { pass(&Store::list, done, request); }
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override { pass(&Store::browse, done, request); }
  void count_waiting(Done<WaitingKeys> done) override { pass(&Store::count_waiting, done); }
  void beat(GatewayBeat mine, Done<std::vector<GatewayBeat>> done) override {
    pass(&Store::beat, done, std::move(mine));
  }
  JobStore& jobs() override { return opened() != nullptr ? opened()->jobs() : no_jobs_; }
  void announce_to(Listener listener) override { tell_later(&Store::announce_to, listener_, std::move(listener)); }
  void owners_here(OwnersHere owners) override { tell_later(&Store::owners_here, owners_, std::move(owners)); }
  std::uint64_t least_fence_here() const override { return opened() != nullptr ? opened()->least_fence_here() : 0; }
  Time now() const override {
    if (const Store* const store = opened()) return store->now();
    return std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
  }
  const std::array<std::uint8_t, 32>& secret() const override { return secret_; }
  Durability durability() const override { return Durability::power; }
  Status healthy() const override { return opened() != nullptr ? opened()->healthy() : reason_; }
  StoreStats stats() const override { return opened() != nullptr ? opened()->stats() : StoreStats{}; }
  StoreDetails details() const override { return opened() != nullptr ? opened()->details() : StoreDetails{}; }
  Result<BackupMade> back_up(const std::string& folder, const TellProgress& tell) override {
    return opened() != nullptr ? opened()->back_up(folder, tell) : Result<BackupMade>(reason_);
  }

 private:
  // Refuses every call with the reason.
  class NoJobs final : public JobStore {
   public:
    explicit NoJobs(const Fault& reason) : reason_(reason) {}
    void stage(StageRequest, Done<StageAnswer> done) override { done(reason_); }
    void take(const TakeRequest&, Done<std::vector<TakenJob>> done) override { done(reason_); }
    void end_attempt(const Ownership&, AttemptEnd, Done<FenceAnswer> done) override { done(reason_); }
    void find(const RecordId&, Done<std::optional<FoundJob>> done) override { done(reason_); }
    void operate(const RecordId&, const std::string&, JobAction, std::optional<JobSeen>,
                 Done<JobAnswer> done) override {
      done(reason_);
    }
    void list(const JobListRequest&, Done<JobPage> done) override { done(reason_); }
    void count(Done<std::vector<JobCount>> done) override { done(reason_); }

   private:
    const Fault& reason_;
  };

  Store* opened() const { return opened_.load(std::memory_order_acquire); }

  template <class Method, class T, class... Arguments>
  void pass(Method method, Done<T>& done, Arguments&&... arguments) {
    if (Store* const store = opened()) return (store->*method)(std::forward<Arguments>(arguments)..., std::move(done));
    done(reason_);
  }
  template <class Method, class Hearer>
  void tell_later(Method method, Hearer& kept, Hearer hearer) {
    const std::lock_guard lock(mutex_);
    if (Store* const store = opened()) return (store->*method)(std::move(hearer));
    kept = std::move(hearer);
  }

  void try_until_open(const std::stop_token& stop) {
    std::string told = reason_.message;
    while (sleep_for(kTryEvery, stop)) {
      Result<std::unique_ptr<Store>> store = open_();
      if (!store) {
        // The same reason once a second would fill the disk that is full already.
        if (store.fault().message != told) log_.error("store_not_opened", {{"reason", store.fault().message}});
        told = store.fault().message;
        continue;
      }
      const std::lock_guard lock(mutex_);
      store_ = *std::move(store);
      if (listener_) store_->announce_to(listener_);
      if (owners_) store_->owners_here(owners_);
      opened_.store(store_.get(), std::memory_order_release);
      log_.info("store_opened", {});
      return;
    }
  }

  const Secret secret_;
  const Fault reason_;
  const Open open_;
  Log& log_;
  std::unique_ptr<Store> store_;
  std::atomic<Store*> opened_ = nullptr;
  NoJobs no_jobs_{reason_};
  std::mutex mutex_; // guards what follows
  Listener listener_;
  OwnersHere owners_;
  std::jthread thread_;
};

} // namespace

Result<std::unique_ptr<Store>> open_journal(const JournalStoreOptions& options) {
  const auto open = [options]() -> Result<std::unique_ptr<Store>> {
    auto store = JournalStore::open(options);
    if (!store) return std::move(store).fault();
    return std::unique_ptr<Store>(*std::move(store));
  };
  Result<std::unique_ptr<Store>> store = open();
  rocksdb::Env* const env = options.env != nullptr ? options.env : rocksdb::Env::Default();
  if (store || check_room(*env, options.path)) return store;
  const Result<std::optional<Secret>> secret = read_secret(options.path, options.sealer);
  if (!secret || !*secret) return store;
  options.log.error("store_not_opened",
                    {{"reason", store.fault().message},
                     {"next", "keyed requests get 503, others pass; the store is opened when there is room"}});
  return std::unique_ptr<Store>(std::make_unique<WaitingStore>(**secret, std::move(store).fault(), open, options.log));
}

Result<std::unique_ptr<JournalStore>> JournalStore::open(JournalStoreOptions options) {
  if (options.path.empty()) return invalid("a journal store needs a path, as in journal:./oncekey-data");
  const Status prepared = prepare_directory(options.path);
  if (!prepared) return prepared.fault();

  rocksdb::DBOptions database = database_options();
  if (options.env != nullptr) database.env = options.env;
  database.listeners.push_back(std::make_shared<GoesOnUnmerged>(options.log));
  if (!check_room(*database.env, options.path)) {
    // That is what it is there for.
    const Ballast ballast(options.path);
    if (ballast.drop()) options.log.warning("ballast_dropped", {{"reason", "the disk is full"}});
  }
  if (const Status room = check_room(*database.env, options.path); !room) return room.fault();
  OpenedDatabase opened;
  if (const Status status = open_database(database, options.path, opened); !status) return status.fault();

  std::error_code error;
  fs::remove_all(fmt::format("{}/{}", options.path, kSnapshotFolder), error); // of a backup that was cut off
  const bool has_log = fs::exists(log_folder(options.path), error);
  const bool is_new = opened.buckets.empty() && opened.job_buckets.empty() && !has_log;
  const StoreAge age = is_new ? StoreAge::is_new : StoreAge::has_content;
  Result<StoreMeta> meta = load_or_make_meta(age, options.path, options.sealer);
  if (!meta) return std::move(meta).fault();
  std::unique_ptr<JournalStore> store(new JournalStore(options, std::move(opened), *std::move(meta)));
  if (const Status started = store->start(options); !started) return started.fault();
  if (options.maintenance == Maintenance::in_background) {
    store->maintenance_ = std::jthread([at = store.get()](const auto& stop) { at->maintain_in_background(stop); });
    store->knowing_ = std::jthread([at = store.get()](const auto& stop) { at->know_ids(stop); });
  }
  return store;
}

Status JournalStore::start(JournalStoreOptions& options) {
  rocksdb::DB& db = *db_;
  rocksdb::Options for_files(db.GetDBOptions(), bucket_options_);
  // These files are merged soon: compressing them is work for nothing. A writer of files takes the last level's word.
  for_files.compression_per_level = {rocksdb::kNoCompression};
  Result<std::unique_ptr<SortedFiles>> sorted = SortedFiles::open(
      db, for_files, folder_ + "/new",
      [this](const Family& family, std::span<const SortedFiles::Line> lines) { return family_of(family, lines); },
      [this](const YoungTable& changes, const LogEnd& sealed) { return indexes_of(changes, sealed); });
  if (!sorted) return std::move(sorted).fault();
  sorted_ = *std::move(sorted);

  Result<std::unique_ptr<BodyFiles>> bodies = BodyFiles::open(folder_ + "/bodies");
  if (!bodies) return std::move(bodies).fault();
  bodies_ = *std::move(bodies);

  const std::string folder = log_folder(folder_);
  if (const Status made = make_private_folder(folder); !made) return made;
  Result<std::unique_ptr<SegmentFiles>> segments = SegmentFiles::open(folder, options.segment_bytes);
  if (!segments) return std::move(segments).fault();
  segments_ = *std::move(segments);
  if (segments_->numbers().empty() && sorted_->sealed().sequence != 0) {
    return corrupt(fmt::format(
        "the store at {} is damaged and is not opened: the segments of its log are missing from {}; restore "
        "a backup, or move the directory away to start with an empty store",
        folder_, folder));
  }

  SegmentedLogOptions log;
  log.salt = meta_.salt();
  log.sealed = sorted_->sealed();
  log.on_fatal = options.on_fatal;
  log.on_sealing = [this](const Status& failed) {
    log_.error("segment_not_sealed", {{"reason", failed.fault().message}, {"next", "it is tried again"}});
    ballast_.drop(); // the endings of what was begun need the room more
  };
  if (options.make_writer) log.make_writer = options.make_writer;
  Result<std::unique_ptr<SegmentedLog>> journal = SegmentedLog::open(*segments_, *sorted_, std::move(log));
  if (!journal) {
    return Fault{journal.fault().kind,
                 fmt::format("the store at {} is not opened: {}", folder_, journal.fault().message)};
  }
  journal_ = *std::move(journal);
  entries_ = std::make_unique<Entries>(db, buckets_, job_buckets_, *journal_);

  Result<std::optional<std::string>> mark = entries_->read(kClockKey);
  if (!mark) return std::move(mark).fault();
  std::optional<ClockMark> saved;
  if (*mark) {
    Result<ClockMark> decoded = decode_clock_mark(**mark);
    if (!decoded) return std::move(decoded).fault();
    saved = *std::move(decoded);
  }
  clock_ = std::make_unique<StoreClock>(std::move(options.clock), saved);
  // Before anything is written: the number of the newest write is compared.
  if (const Status compared = look_for_loss(); !compared) return compared;
  compared_ = true;
  // Drops what expired while no process was running, before the first call. On a full disk the next round does it.
  if (const Status maintained = maintain(); !maintained)
    log_.warning("store_maintenance_failed", {{"reason", maintained.fault().message}});
  // The clock of a backup may be behind the fences that were given after it was made.
  const Time wall = std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
  const Time fences_from = is_backup_ ? std::max(clock_->now(), wall) : clock_->now();
  if (const Status loaded = fences_.load(*entries_, fences_from); !loaded) return loaded;
  least_fence_here_ = fences_.next();
  if (const Status loaded = load_unsettled(); !loaded) return loaded;
  jobs_ = std::make_unique<JournalJobs>(
      *entries_, *bodies_, *clock_, fences_,
      JournalJobs::Begin{[this] { return may_begin(); },
                         [this](std::size_t entries, std::size_t bytes, bool is_ending) {
                           return begin_change(entries, bytes, is_ending ? Change::ending : Change::other);
                         }});
  if (const Status loaded = jobs_->load(); !loaded) return loaded;
  journal_->wait_until_durable();
  if (const Status health = journal_->healthy(); !health) return health;
  journal_->start_sealing();
  return ok_status();
}

} // namespace oncekey
