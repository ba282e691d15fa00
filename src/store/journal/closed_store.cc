#include "store/journal/closed_store.h"

#include "base/private_files.h"
#include "store/journal/buckets.h"
#include "store/journal/segmented_log.h"
#include "store/journal/sorted_files.h"
#include "store/journal/tuning.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

// RocksDB would write a log into the folder.
class NoLog final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

} // namespace

std::unique_ptr<ClosedStore> ClosedStore::open(const std::string& folder, const Sealer* sealer,
                                               StoreFindings& findings) {
  auto store = std::make_unique<ClosedStore>();
  store->folder = folder;
  const bool opened =
      store->look_at_meta(sealer, findings) && store->open_database(findings) && store->look_at_log(findings);
  return opened ? std::move(store) : nullptr;
}

const ClosedStore::YoungEntry* ClosedStore::young_entry(FamilyKind kind, std::string_view key) const {
  const Young& entries = young_of(kind);
  const auto at = entries.find(std::string(key));
  return at == entries.end() ? nullptr : &at->second;
}

bool ClosedStore::look_at_meta(const Sealer* sealer, StoreFindings& findings) {
  const Result<StoreMeta> found = read_meta(folder);
  if (!found) return findings.problem(found.fault());
  meta = *found;
  findings.report.format = meta.format;
  findings.report.details.id = hex_encode({reinterpret_cast<const char*>(meta.id.data()), meta.id.size()});
  const Result<std::optional<Secret>> secret = read_secret(folder, sealer);
  if (!secret && sealer == nullptr) {
    findings.report.notes.push_back(
        fmt::format("the secret and the index by text were not checked: {}", secret.fault().message));
  } else if (!secret) {
    findings.problem(secret.fault(), "put the file `secret` back from a backup: without it no key is found");
  } else if (!*secret) {
    findings.problem(fmt::format("{}/{} is missing", folder, kSecretFile),
                     "put the file back from a backup: without it no key is found");
  } else if (secret_check(**secret) != meta.secret_check) {
    findings.problem(fmt::format("{}/{} is the secret of another store", folder, kSecretFile),
                     "put the store's own file back from a backup: with this one no key is found");
  } else {
    text_hash.emplace(**secret);
  }
  return true;
}

bool ClosedStore::open_database(StoreFindings& findings) {
  rocksdb::DBOptions options = database_options();
  options.create_if_missing = false;
  options.info_log = std::make_shared<NoLog>();
  std::vector<std::string> names;
  rocksdb::Status status = rocksdb::DB::ListColumnFamilies(options, folder, &names);
  if (!status.ok()) return findings.problem(fault_of(status, "the list of files cannot be read"));
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const std::string& name : names) {
    OpenFamily one{{}, name, nullptr};
    const bool jobs = name.starts_with(kJobFamilies);
    const auto bucket = bucket_from_name(std::string_view(name).substr(jobs ? kJobFamilies.size() : 0));
    if (name != rocksdb::kDefaultColumnFamilyName) {
      if (!bucket) {
        return findings.problem(
            fmt::format("a part is named \"{}\", which store format {} does not have", name, kStoreFormat),
            kUseItsVersion);
      }
      one.family = {jobs ? FamilyKind::jobs : FamilyKind::records, *bucket};
    }
    families.push_back(std::move(one));
    descriptors.emplace_back(name, bucket_options());
  }
  rocksdb::DB* opened = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  status = rocksdb::DB::OpenForReadOnly(options, folder, descriptors, &handles, &opened);
  if (!status.ok()) return findings.problem(fault_of(status, "the sorted files cannot be opened"));
  db.reset(opened);
  for (std::size_t i = 0; i < handles.size(); ++i)
    families[i].handle = {handles[i],
                          [opened](rocksdb::ColumnFamilyHandle* one) { opened->DestroyColumnFamilyHandle(one); }};
  return true;
}

bool ClosedStore::look_at_log(StoreFindings& findings) {
  Result<LogEnd> sealed = read_sealed_mark(*db);
  if (!sealed) return findings.problem(sealed.fault());
  std::vector<std::pair<std::uint32_t, std::string>> contents;
  std::error_code error;
  for (fs::directory_iterator at(folder + "/log", error), end; !error && at != end; at.increment(error)) {
    const std::optional<std::uint32_t> number = segment_number_in(at->path());
    if (!number) continue;
    const std::uint64_t bytes = at->file_size(error);
    if (bytes == 0 || bytes % kBlockBytes != 0 || (!contents.empty() && contents.front().second.size() != bytes)) {
      return findings.problem(
          fmt::format("{} has {} bytes, and all segments have the same size", at->path().native(), bytes),
          kRestoreBackup);
    }
    Result<std::optional<std::string>> content = read_file_if_there(at->path().native(), bytes);
    if (!content) return findings.problem(content.fault());
    if (!*content || (*content)->size() != bytes) {
      return findings.problem(fmt::format("{} is cut short", at->path().native()), kRestoreBackup);
    }
    contents.emplace_back(*number, **std::move(content));
    findings.read(bytes);
  }
  findings.report.details.log_segments = contents.size();
  if (contents.empty() && sealed->sequence != 0) {
    return findings.problem(fmt::format("the segments of the log are missing from {}/log", folder), kRestoreBackup);
  }
  std::vector<SegmentBytes> segments;
  for (const auto& [number, bytes] : contents) segments.push_back({number, bytes});
  const auto visit = [&](const LogEnd&, std::string_view payload) {
    return each_log_entry(payload, [&](const LogEntry& entry) {
      Young& entries = young[static_cast<std::size_t>(entry.family.kind)];
      entries[std::string(entry.key)] = {entry.family, std::string(entry.value), entry.erased};
    });
  };
  const Result<RecoveredLog> log = recover_log(meta.salt(), *sealed, segments, visit);
  if (!log) return findings.problem(log.fault());
  findings.report.details.newest_sequence = log->end.sequence;
  return true;
}

} // namespace oncekey
