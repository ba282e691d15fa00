#include "store/journal/examine.h"

#include "base/crypto.h"
#include "base/private_files.h"
#include "core/record_codec.h"
#include "store/journal/backup.h"
#include "store/journal/body_files.h"
#include "store/journal/buckets.h"
#include "store/journal/fences.h"
#include "store/journal/meta.h"
#include "store/journal/segmented_log.h"
#include "store/journal/sorted_files.h"
#include "store/journal/text_index.h"
#include "store/journal/time_index.h"
#include "store/journal/tuning.h"
#include "store/journal/unsettled.h"

#include <fmt/format.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

// One damaged block can show in thousands of records.
constexpr std::size_t kProblemsShown = 50;
constexpr std::uint64_t kToldEveryBytes = std::uint64_t{4} << 20;
constexpr std::string_view kRestore = "restore a backup, or move the folder away to start with an empty store";
constexpr std::string_view kAsk =
    "make a backup of the folder as it is, and restore the newest backup that `oncekey store verify` finds sound";

// RocksDB would write a log into the folder.
class NoLog final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

std::string lock_path(const std::string& folder) { return folder + "/LOCK"; }

std::string kind_and_key(FamilyKind kind, std::string_view key) {
  return static_cast<char>('0' + static_cast<int>(kind)) + std::string(key);
}

class Examiner {
 public:
  Examiner(const std::string& folder, const ExamineOptions& options)
      : folder_(folder), options_(options), deep_(options.depth == Depth::everything) {}

  Result<StoreReport> run() {
    std::error_code error;
    if (!fs::exists(folder_ + "/CURRENT", error)) return invalid(fmt::format("there is no store at {}", folder_));
    const Result<std::vector<std::string>> files = files_of_store(folder_);
    if (!files) return files.fault();
    for (const std::string& name : *files) report_.bytes_on_disk += fs::file_size(folder_ + "/" + name, error);
    // Blocks are read once for their checksums and once for what is in them.
    total_ = 2 * report_.bytes_on_disk;
    if (look_at_meta() && open_database() && look_at_log()) {
      for (const auto step : {&Examiner::look_at_backup, &Examiner::look_at_tables, &Examiner::look_at_families,
                              &Examiner::look_at_young, &Examiner::look_at_bodies}) {
        (this->*step)();
        if (given_up_) return Fault{FaultKind::conflict, "it was given up before everything was read"};
      }
    }
    report_.details.log_segments = segments_;
    return std::move(report_);
  }

 private:
  struct YoungEntry {
    Family family;
    std::string value;
    bool erased = false;
  };
  struct OpenFamily {
    Family family; // of the store's own for the default one
    std::string name;
    std::shared_ptr<rocksdb::ColumnFamilyHandle> handle;
  };

  void problem(std::string what, std::string_view next) {
    if (report_.problems.size() == kProblemsShown) {
      ++report_.problems_left_out;
      return;
    }
    report_.problems.push_back({std::move(what), std::string(next)});
  }
  bool fails(const Fault& fault, std::string_view next = kRestore) {
    problem(fault.message, fault.kind == FaultKind::newer_format ? "use the version of oncekey that wrote it" : next);
    return false;
  }
  void read(std::uint64_t bytes) {
    done_ += bytes;
    if (done_ - told_ < kToldEveryBytes) return;
    told_ = done_;
    if (options_.tell && !options_.tell(std::min(done_, total_), total_)) given_up_ = true;
  }

  bool look_at_meta() {
    const Result<StoreMeta> meta = read_meta(folder_);
    if (!meta) return fails(meta.fault());
    meta_ = *meta;
    report_.format = meta_.format;
    report_.details.id = hex_encode({reinterpret_cast<const char*>(meta_.id.data()), meta_.id.size()});
    const Result<std::optional<Secret>> secret = read_secret(folder_, options_.sealer);
    if (!secret && options_.sealer == nullptr) {
      report_.notes.push_back(
          fmt::format("the secret and the index by text were not checked: {}", secret.fault().message));
    } else if (!secret) {
      fails(secret.fault(), "put the file `secret` back from a backup: without it no key is found");
    } else if (!*secret) {
      problem(fmt::format("{}/{} is missing", folder_, kSecretFile),
              "put the file back from a backup: without it no key is found");
    } else if (secret_check(**secret) != meta_.secret_check) {
      problem(fmt::format("{}/{} is the secret of another store", folder_, kSecretFile),
              "put the store's own file back from a backup: with this one no key is found");
    } else {
      text_hash_.emplace(**secret);
    }
    return true;
  }

  bool open_database() {
    rocksdb::DBOptions options = database_options();
    options.create_if_missing = false;
    options.info_log = std::make_shared<NoLog>();
    std::vector<std::string> names;
    rocksdb::Status status = rocksdb::DB::ListColumnFamilies(options, folder_, &names);
    if (!status.ok()) return fails(fault_of(status, "the list of files cannot be read"));
    std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
    for (const std::string& name : names) {
      OpenFamily open{{}, name, nullptr};
      const bool jobs = name.starts_with(kJobFamilies);
      const auto bucket = bucket_from_name(std::string_view(name).substr(jobs ? kJobFamilies.size() : 0));
      if (name != rocksdb::kDefaultColumnFamilyName) {
        if (!bucket) {
          problem(fmt::format("a part is named \"{}\", which store format {} does not have", name, kStoreFormat),
                  "use the version of oncekey that wrote it");
          return false;
        }
        open.family = {jobs ? FamilyKind::jobs : FamilyKind::records, *bucket};
      }
      families_.push_back(std::move(open));
      descriptors.emplace_back(name, bucket_options_);
    }
    rocksdb::DB* db = nullptr;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    status = rocksdb::DB::OpenForReadOnly(options, folder_, descriptors, &handles, &db);
    if (!status.ok()) return fails(fault_of(status, "the sorted files cannot be opened"));
    db_.reset(db);
    for (std::size_t i = 0; i < handles.size(); ++i)
      families_[i].handle = {handles[i],
                             [db](rocksdb::ColumnFamilyHandle* one) { db->DestroyColumnFamilyHandle(one); }};
    return true;
  }

  bool look_at_log() {
    Result<LogEnd> sealed = read_sealed_mark(*db_);
    if (!sealed) return fails(sealed.fault());
    std::vector<std::pair<std::uint32_t, std::string>> contents;
    std::error_code error;
    for (fs::directory_iterator at(folder_ + "/log", error), end; !error && at != end; at.increment(error)) {
      const std::optional<std::uint32_t> number = segment_number_in(at->path());
      if (!number) continue;
      const std::uint64_t bytes = at->file_size(error);
      if (bytes == 0 || bytes % kBlockBytes != 0 || (!contents.empty() && contents.front().second.size() != bytes)) {
        problem(fmt::format("{} has {} bytes, and all segments have the same size", at->path().native(), bytes),
                kRestore);
        return false;
      }
      Result<std::optional<std::string>> content = read_file_if_there(at->path().native(), bytes);
      if (!content) return fails(content.fault());
      if (!*content || (*content)->size() != bytes) {
        problem(fmt::format("{} is cut short", at->path().native()), kRestore);
        return false;
      }
      contents.emplace_back(*number, **std::move(content));
      read(bytes);
    }
    segments_ = contents.size();
    if (contents.empty() && sealed->sequence != 0) {
      problem(fmt::format("the segments of the log are missing from {}/log", folder_), kRestore);
      return false;
    }
    std::vector<SegmentBytes> segments;
    for (const auto& [number, bytes] : contents) segments.push_back({number, bytes});
    const auto visit = [&](const LogEnd&, std::string_view payload) {
      return each_log_entry(payload, [&](const LogEntry& entry) {
        young_[kind_and_key(entry.family.kind, entry.key)] = {entry.family, std::string(entry.value), entry.erased};
      });
    };
    const Result<RecoveredLog> log = recover_log(meta_.salt(), *sealed, segments, visit);
    if (!log) return fails(log.fault());
    report_.details.newest_sequence = log->end.sequence;
    return true;
  }

  void look_at_backup() {
    const Result<std::optional<BackupNote>> note = read_backup_note(folder_);
    if (!note) return void(fails(note.fault(), "use another backup"));
    if (!*note) return;
    report_.backup = (*note)->as_made(folder_);
    if (!deep_) return;
    for (const BackupFile& file : (*note)->files) {
      const Result<std::uint64_t> checksum = checksum_of_file(folder_ + "/" + file.name, file.bytes);
      if (!checksum) {
        fails(checksum.fault(), "use another backup");
      } else if (*checksum != file.checksum) {
        problem(fmt::format("{}/{} does not have the content that was backed up", folder_, file.name),
                "use another backup");
      }
      if (given_up_) return;
    }
  }

  Result<std::uint64_t> checksum_of_file(const std::string& path, std::uint64_t bytes) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return corrupt(fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
    XXH3_64bits_reset(hash.get());
    std::string piece(std::size_t{1} << 20, '\0');
    std::uint64_t all = 0;
    ssize_t got = 0;
    while ((got = ::read(file, piece.data(), piece.size())) > 0) {
      XXH3_64bits_update(hash.get(), piece.data(), static_cast<std::size_t>(got));
      all += static_cast<std::uint64_t>(got);
    }
    const int error = errno;
    ::close(file);
    if (got < 0) return corrupt(fmt::format("{} cannot be read: {}", path, std::strerror(error)));
    if (all != bytes) return corrupt(fmt::format("{} has {} bytes and should have {}", path, all, bytes));
    return XXH3_64bits_digest(hash.get());
  }

  void look_at_tables() {
    std::vector<rocksdb::LiveFileMetaData> files;
    db_->GetLiveFilesMetaData(&files);
    std::map<std::string, std::uint64_t> bytes_of;
    for (const rocksdb::LiveFileMetaData& file : files) {
      bytes_of[file.column_family_name] += file.size;
      if (!deep_) continue;
      const std::string path = folder_ + file.name;
      const rocksdb::Options options(db_->GetDBOptions(), bucket_options_);
      const rocksdb::Status status = rocksdb::VerifySstFileChecksum(options, rocksdb::EnvOptions(), path);
      if (!status.ok()) fails(fault_of(status, fmt::format("{} is damaged", path)), kAsk);
      read(file.size);
      if (given_up_) return;
    }
    for (const OpenFamily& open : families_) {
      if (open.family.kind == FamilyKind::store) continue;
      std::uint64_t keys = 0;
      db_->GetIntProperty(open.handle.get(), rocksdb::DB::Properties::kEstimateNumKeys, &keys);
      // Beside a record stands its entry in the index by text, beside a job's state its message.
      report_.details.buckets.push_back({to_string(open.family.bucket),
                                         open.family.kind == FamilyKind::jobs ? "jobs" : "keys",
                                         open.family.bucket.end(), keys / 2, bytes_of[open.name]});
    }
    std::sort(report_.details.buckets.begin(), report_.details.buckets.end(),
              [](const StoreBucket& a, const StoreBucket& b) { return a.ends < b.ends; });
    if (!deep_) estimate();
  }

  // Without reading every record: those that are not settled are known, all others are completed.
  void estimate() {
    std::uint64_t keys = 0;
    for (const StoreBucket& bucket : report_.details.buckets)
      (bucket.holds == "jobs" ? report_.jobs : keys) += bucket.records;
    std::set<std::string> unsettled;
    scan_store(kUnsettledPrefix,
               [&](std::string_view key) { unsettled.insert(std::string(key.substr(kUnsettledPrefix.size()))); });
    scan_store("job/", [&](std::string_view) { ++report_.jobs_not_over; });
    for (const auto& [key, entry] : young_) {
      if (entry.erased || entry.family.kind != FamilyKind::records || key.size() != 1 + sizeof(RecordId)) continue;
      const Result<Record> record = decode_record(without_reference(entry.value), DecodeBody::no);
      if (!record) continue;
      unsettled.erase(key.substr(1));
      count(*record);
    }
    for (const std::string& id : unsettled) {
      std::string value;
      for (const OpenFamily& open : families_) {
        if (open.family.kind != FamilyKind::records || !db_->Get({}, open.handle.get(), id, &value).ok()) continue;
        const Result<Record> record = decode_record(without_reference(value), DecodeBody::no);
        if (record) count(*record);
        if (keys > 0) --keys;
        break;
      }
    }
    report_.completed += keys;
  }

  // The store's own keys with that prefix, young and old.
  template <class Each>
  void scan_store(std::string_view prefix, Each each) {
    for (const auto& [key, entry] : young_) {
      if (entry.family.kind == FamilyKind::store && !entry.erased &&
          std::string_view(key).substr(1).starts_with(prefix))
        each(std::string_view(key).substr(1));
    }
    (void)oncekey::scan(*db_, db_->DefaultColumnFamily(), prefix, "",
                        [&](std::string_view key, std::string_view) -> Result<bool> {
                          if (!young_.contains(kind_and_key(FamilyKind::store, key))) each(key);
                          return true;
                        });
  }

  void count(const Record& record) {
    switch (record.state) {
      case RecordState::in_progress:
        ++report_.in_progress;
        break;
      case RecordState::indeterminate:
        ++report_.indeterminate;
        break;
      case RecordState::completed:
        ++report_.completed;
        break;
    }
  }

  void look_at_families() {
    if (!deep_) return;
    for (const OpenFamily& open : families_) {
      rocksdb::ReadOptions options = passing_by();
      options.verify_checksums = true;
      const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options, open.handle.get()));
      for (at->SeekToFirst(); at->Valid() && !given_up_; at->Next()) {
        const std::string_view key = at->key().ToStringView();
        const std::string_view value = at->value().ToStringView();
        const bool superseded = young_.contains(kind_and_key(open.family.kind, key));
        look_at_entry(open, key, value, superseded);
        read(key.size() + value.size());
      }
      if (!at->status().ok())
        fails(fault_of(at->status(), fmt::format("{} cannot be read to its end", open.name)), kAsk);
    }
  }

  void look_at_young() {
    if (!deep_) return;
    for (const auto& [key, entry] : young_) {
      if (entry.erased) continue;
      look_at_content(entry.family, std::string_view(key).substr(1), entry.value);
    }
  }

  void look_at_entry(const OpenFamily& open, std::string_view key, std::string_view value, bool superseded) {
    if (open.family.kind == FamilyKind::records && is_time_key(key)) {
      if (value.size() % sizeof(RecordId) != 0)
        problem(fmt::format("an entry of the index by time in {} has the wrong length", open.name), kAsk);
      return;
    }
    if (open.family.kind == FamilyKind::records && is_text_key(key)) return;
    // The old value counts no more, and must still be one.
    if (superseded) return check_shape(open.family, key, value);
    look_at_content(open.family, key, value);
    if (open.family.kind == FamilyKind::records) look_at_indexes(open, key, value);
  }

  void check_shape(const Family& family, std::string_view key, std::string_view value) {
    if (family.kind != FamilyKind::records) return;
    const Result<Record> record = decode_record(without_reference(value), DecodeBody::yes);
    if (!record)
      fails(Fault{record.fault().kind,
                  fmt::format("a former value of record {}: {}", name_of(key), record.fault().message)},
            kAsk);
  }

  static std::string name_of(std::string_view key) {
    const std::optional<RecordId> id =
        id_in_key(key, key.size() >= sizeof(RecordId) ? key.size() - sizeof(RecordId) : 0);
    return id ? to_hex(*id) : "without an id";
  }

  void look_at_content(const Family& family, std::string_view key, std::string_view value) {
    switch (family.kind) {
      case FamilyKind::store:
        return look_at_own(key, value);
      case FamilyKind::records:
        return look_at_record(family, key, value);
      case FamilyKind::jobs:
        return look_at_job(key, value);
    }
  }

  void look_at_own(std::string_view key, std::string_view value) {
    if (key == kClockKey) {
      if (const auto mark = decode_clock_mark(value); !mark) fails(mark.fault());
    } else if (key == kFenceKey && value.size() != sizeof(std::uint64_t)) {
      problem("the counter of fences does not have 8 bytes", kRestore);
    } else if (key == kLossKey) {
      report_.notes.push_back(fmt::format("the store has lost its memory and refuses claims: {}", value));
    } else if (key.starts_with("job/")) {
      ++report_.jobs_not_over;
    }
  }

  void look_at_record(const Family& family, std::string_view key, std::string_view value) {
    const std::optional<RecordId> id = id_in_key(key, 0);
    if (!id)
      return problem(fmt::format("a key of {} bytes in {} is not a record's", key.size(), to_string(family.bucket)),
                     kAsk);
    std::string_view rest = value;
    const std::optional<BodyReference> body = take_body_reference(rest);
    const Result<Record> record = decode_record(rest, DecodeBody::yes);
    if (!record) {
      return void(
          fails(Fault{record.fault().kind, fmt::format("record {}: {}", to_hex(*id), record.fault().message)}, kAsk));
    }
    count(*record);
    if (body) look_at_body(BodyFileKind::response, *id, *body);
  }

  void look_at_job(std::string_view key, std::string_view value) {
    const std::optional<RecordId> id = id_in_key(key, 1);
    if (!id || (key[0] != 's' && key[0] != 'm'))
      return problem(fmt::format("a key of {} bytes is not a job's", key.size()), kAsk);
    Status sound = ok_status();
    if (key[0] == 's') {
      ++report_.jobs;
      if (const auto job = decode_job(*id, value); !job) sound = job.fault();
    } else {
      std::string_view rest = value;
      const std::optional<BodyReference> body = take_body_reference(rest);
      if (body) return look_at_body(BodyFileKind::message, *id, *body);
      if (const auto message = decode_message(rest); !message) sound = message.fault();
    }
    if (!sound) fails(Fault{sound.fault().kind, fmt::format("job {}: {}", to_hex(*id), sound.fault().message)}, kAsk);
  }

  void look_at_body(BodyFileKind kind, const RecordId& id, const BodyReference& body) {
    const std::string name = fmt::format("{}-{}-{:016x}", static_cast<char>(kind), to_hex(id), body.number);
    referred_.insert(name);
    const std::string path = fmt::format("{}/bodies/{}", folder_, name);
    const Result<std::uint64_t> checksum = checksum_of_file(path, body.bytes);
    read(2 * body.bytes);
    if (!checksum) {
      fails(checksum.fault(), "restore a backup, or release that key if it may be executed again (oncekey keys)");
    } else if (*checksum != body.checksum) {
      problem(fmt::format("{} is damaged: its checksum does not match its bytes", path),
              "restore a backup, or release that key if it may be executed again (oncekey keys)");
    }
  }

  // A sealed record has entries in both indexes, and one among what is not settled unless it is.
  void look_at_indexes(const OpenFamily& open, std::string_view key, std::string_view value) {
    const std::optional<RecordId> id = id_in_key(key, 0);
    const Result<Record> record = decode_record(without_reference(value), DecodeBody::no);
    if (!id || !record) return;
    std::string ignored;
    const std::string_view key_text = front_of(without_reference(value)).key;
    if (text_hash_ && !key_text.empty()) {
      const std::string text = text_key(*text_hash_, key_text).append(key);
      if (!db_->Get({}, open.handle.get(), text, &ignored).ok())
        problem(
            fmt::format("record {} is missing in the index by text: a search by its key does not find it", to_hex(*id)),
            "nothing is executed twice by that; search by the id");
    }
    if (!is_in_time_index(open, record->first_received, key)) {
      problem(fmt::format("record {} is missing in the index by time: listings do not show it", to_hex(*id)),
              "nothing is executed twice by that; search by the key or the id");
    }
    const Time now = std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
    if (record->state == RecordState::completed || now >= record->expires_at) return;
    const std::string entry = key_with_id(kUnsettledPrefix, *id);
    const auto young = young_.find(kind_and_key(FamilyKind::store, entry));
    const bool there =
        young != young_.end() ? !young->second.erased : db_->Get({}, db_->DefaultColumnFamily(), entry, &ignored).ok();
    if (!there) {
      problem(fmt::format("record {} is not settled and missing in the index of these", to_hex(*id)),
              "nothing is executed twice by that; settle it by its id (oncekey keys)");
    }
  }

  bool is_in_time_index(const OpenFamily& open, Time first_received, std::string_view key) {
    const std::string from = time_key(first_received, 0);
    const std::string prefix = from.substr(0, sizeof(std::uint64_t));
    if (!time_iterator_ || time_family_ != open.handle.get()) {
      time_iterator_.reset(db_->NewIterator(passing_by(), open.handle.get()));
      time_family_ = open.handle.get();
    }
    rocksdb::Iterator& at = *time_iterator_;
    for (at.Seek(from); at.Valid() && at.key().starts_with(prefix); at.Next()) {
      if (!is_time_key(at.key().ToStringView())) continue;
      std::string_view ids = at.value().ToStringView();
      for (; ids.size() >= key.size(); ids.remove_prefix(key.size())) {
        if (ids.substr(0, key.size()) == key) return true;
      }
    }
    return false;
  }

  void look_at_bodies() {
    std::error_code error;
    std::uint64_t unreferred = 0;
    for (fs::directory_iterator at(folder_ + "/bodies", error), end; !error && at != end; at.increment(error)) {
      ++report_.body_files;
      if (deep_ && !referred_.contains(at->path().filename().native())) ++unreferred;
    }
    if (unreferred != 0) {
      report_.notes.push_back(
          fmt::format("{} files in bodies/ belong to no record: they are removed while a gateway runs", unreferred));
    }
  }

  const std::string folder_;
  const ExamineOptions& options_;
  const bool deep_;
  StoreReport report_;
  StoreMeta meta_;
  std::optional<KeyedHash> text_hash_;
  const rocksdb::ColumnFamilyOptions bucket_options_ = bucket_options();
  std::unique_ptr<rocksdb::DB> db_; // outlives the families' handles
  std::vector<OpenFamily> families_;
  std::unique_ptr<rocksdb::Iterator> time_iterator_;
  const rocksdb::ColumnFamilyHandle* time_family_ = nullptr;
  std::unordered_map<std::string, YoungEntry> young_;
  std::set<std::string> referred_;
  std::uint64_t segments_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t total_ = 0;
  bool given_up_ = false;
};

} // namespace

std::optional<pid_t> process_with_journal(const std::string& folder) {
  const int file = ::open(lock_path(folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const int asked = ::fcntl(file, F_GETLK, &lock);
  ::close(file);
  if (asked != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder + "/CURRENT", error)) return invalid(fmt::format("there is no store at {}", folder));
  const int file = ::open(lock_path(folder).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return FolderLock(-1);
  if (file < 0) return unavailable(fmt::format("{} cannot be opened: {}", lock_path(folder), std::strerror(errno)));
  FolderLock taken(file);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file, F_SETLK, &lock) == 0) return taken;
  const std::optional<pid_t> holder = process_with_journal(folder);
  return Fault{FaultKind::conflict,
               fmt::format("the store at {} is in use by process {}", folder, holder ? std::to_string(*holder) : "?")};
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

Result<StoreReport> examine_journal(const std::string& folder, const ExamineOptions& options) {
  return Examiner(folder, options).run();
}

} // namespace oncekey
