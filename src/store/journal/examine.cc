#include "store/journal/examine.h"

#include "core/record_codec.h"
#include "store/common/store_note.h"
#include "store/journal/backup.h"
#include "store/journal/buckets.h"
#include "store/journal/content_check.h"
#include "store/journal/folder_lock.h"
#include "store/journal/meta.h"
#include "store/journal/tuning.h"
#include "store/journal/unsettled.h"

#include <fmt/format.h>
#include <rocksdb/convenience.h>
#include <rocksdb/env.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUseAnotherBackup = "use another backup";

// Bytes on disk, by the name of the family.
using FamilyBytes = std::map<std::string, std::uint64_t>;

bool is_there(const std::string& folder, std::string_view name) {
  std::error_code unknown;
  return fs::exists(fmt::format("{}/{}", folder, name), unknown);
}

void look_at_backup(const BackupNote& note, const std::string& folder, StoreFindings& findings) {
  for (const BackupFile& file : note.files) {
    // To accept the loss adds an action for the audit log to it.
    if (findings.report.loss_accepted && file.name == name_of(StoreNote::audit_pending)) continue;
    const Result<std::uint64_t> checksum = checksum_of_file(folder + "/" + file.name, file.bytes, findings);
    if (!checksum) {
      findings.problem(checksum.fault(), kUseAnotherBackup);
    } else if (*checksum != file.checksum) {
      findings.problem(fmt::format("{}/{} does not have the content that was backed up", folder, file.name),
                       kUseAnotherBackup);
    }
    if (findings.given_up()) return;
  }
}

// Every block has its checksum.
void verify_tables(const ClosedStore& store, const std::vector<rocksdb::LiveFileMetaData>& files,
                   StoreFindings& findings) {
  const rocksdb::Options options(store.db->GetDBOptions(), bucket_options());
  for (const rocksdb::LiveFileMetaData& file : files) {
    const std::string path = store.folder + file.name;
    const rocksdb::Status status = rocksdb::VerifySstFileChecksum(options, rocksdb::EnvOptions(), path);
    if (!status.ok()) findings.problem(fault_of(status, fmt::format("{} is damaged", path)), kKeepAndRestore);
    findings.read(file.size);
    if (findings.given_up()) return;
  }
}

void list_buckets(const ClosedStore& store, const FamilyBytes& bytes, StoreDetails& details) {
  for (const ClosedStore::OpenFamily& open : store.families) {
    if (open.family.kind == FamilyKind::store) continue;
    std::uint64_t keys = 0;
    store.db->GetIntProperty(open.handle.get(), rocksdb::DB::Properties::kEstimateNumKeys, &keys);
    const auto found = bytes.find(open.name);
    // Beside a record stands its entry in the index by text, beside a job's state its message.
    details.buckets.push_back({to_string(open.family.bucket), open.family.kind == FamilyKind::jobs ? "jobs" : "keys",
                               open.family.bucket.end(), keys / 2, found != bytes.end() ? found->second : 0});
  }
  std::sort(details.buckets.begin(), details.buckets.end(),
            [](const StoreBucket& a, const StoreBucket& b) { return a.ends < b.ends; });
}

// The store's own keys with that prefix, young and old.
template <class Each>
void scan_own(const ClosedStore& store, std::string_view prefix, Each each) {
  for (const auto& [key, entry] : store.young_of(FamilyKind::store)) {
    if (!entry.erased && key.starts_with(prefix)) each(std::string_view(key));
  }
  (void)scan(*store.db, store.db->DefaultColumnFamily(), prefix, "",
             [&](std::string_view key, std::string_view) -> Result<bool> {
               if (store.young_entry(FamilyKind::store, key) == nullptr) each(key);
               return true;
             });
}

// Counts without reading every record: those that are not settled are known, all others are completed.
void estimate(const ClosedStore& store, StoreReport& report) {
  std::uint64_t keys = 0;
  for (const StoreBucket& bucket : report.details.buckets)
    (bucket.holds == "jobs" ? report.jobs : keys) += bucket.records;
  std::set<std::string> unsettled;
  scan_own(store, kUnsettledPrefix,
           [&](std::string_view key) { unsettled.insert(std::string(key.substr(kUnsettledPrefix.size()))); });
  scan_own(store, "job/", [&](std::string_view) { ++report.jobs_not_over; });
  for (const auto& [key, entry] : store.young_of(FamilyKind::records)) {
    if (entry.erased || key.size() != sizeof(RecordId)) continue;
    const Result<Record> record = decode_record(without_reference(entry.value), DecodeBody::no);
    if (!record) continue;
    unsettled.erase(key);
    count_record(*record, report);
  }
  for (const std::string& id : unsettled) {
    std::string value;
    for (const ClosedStore::OpenFamily& open : store.families) {
      if (open.family.kind != FamilyKind::records || !store.db->Get({}, open.handle.get(), id, &value).ok()) continue;
      const Result<Record> record = decode_record(without_reference(value), DecodeBody::no);
      if (record) count_record(*record, report);
      if (keys > 0) --keys;
      break;
    }
  }
  report.completed += keys;
}

// Nothing, unless all of the store was read.
void count_bodies(const std::string& folder, const ContentCheck* content, StoreReport& report) {
  std::error_code error;
  std::uint64_t unreferred = 0;
  for (fs::directory_iterator at(folder + "/bodies", error), end; !error && at != end; at.increment(error)) {
    ++report.body_files;
    if (content != nullptr && !content->refers_to(at->path().filename().native())) ++unreferred;
  }
  if (unreferred != 0) {
    report.notes.push_back(
        fmt::format("{} files in bodies/ belong to no record: they are removed while a gateway runs", unreferred));
  }
}

// `list`: the files of the backup, where they must still be as they were backed up.
void examine_opened(const ClosedStore& store, const std::optional<BackupNote>& list, Depth depth,
                    StoreFindings& findings) {
  std::vector<rocksdb::LiveFileMetaData> files;
  store.db->GetLiveFilesMetaData(&files);
  FamilyBytes bytes;
  for (const rocksdb::LiveFileMetaData& file : files) bytes[file.column_family_name] += file.size;
  list_buckets(store, bytes, findings.report.details);
  if (depth == Depth::numbers) {
    estimate(store, findings.report);
    return count_bodies(store.folder, nullptr, findings.report);
  }
  if (list) look_at_backup(*list, store.folder, findings);
  if (!findings.given_up()) verify_tables(store, files, findings);
  ContentCheck content(store, findings);
  for (const ClosedStore::OpenFamily& open : store.families) {
    if (!findings.given_up()) content.look_at_family(open, bytes[open.name]);
  }
  if (!findings.given_up()) content.look_at_young();
  if (!findings.given_up()) count_bodies(store.folder, &content, findings.report);
}

} // namespace

Result<StoreReport> examine_journal(const std::string& folder, const ExamineOptions& options) {
  std::error_code error;
  if (!fs::exists(folder + "/CURRENT", error)) return invalid(fmt::format("there is no store at {}", folder));
  const Result<std::vector<std::string>> files = files_of_store(folder);
  if (!files) return files.fault();
  StoreFindings findings(options.tell);
  findings.report.loss_accepted = is_there(folder, kLossAcceptedFile);
  const Result<std::optional<BackupNote>> note = read_backup_note(folder);
  // A gateway that opens the store changes its files, also when it refuses claims.
  const bool never_opened = !is_there(folder, kLockFile);
  const std::optional<BackupNote> list = note && never_opened ? *note : std::nullopt;
  for (const std::string& name : *files) {
    const std::uint64_t bytes = fs::file_size(folder + "/" + name, error);
    findings.report.bytes_on_disk += bytes;
    // Tables are read once for their checksums and once for what is in them, a backup once more for its own.
    const std::uint64_t content = name.ends_with(".sst") ? ContentCheck::kWorkOfByte * bytes : 0;
    findings.expect(bytes + content + (list ? bytes : 0));
  }
  if (!note) {
    findings.problem(note.fault(), kUseAnotherBackup);
  } else if (*note) {
    findings.report.backup = (*note)->as_made(folder);
  }
  const std::unique_ptr<ClosedStore> store = ClosedStore::open(folder, options.sealer, findings);
  if (store) examine_opened(*store, list, options.depth, findings);
  if (findings.given_up()) return Fault{FaultKind::conflict, "it was given up before everything was read"};
  return std::move(findings.report);
}

} // namespace oncekey
