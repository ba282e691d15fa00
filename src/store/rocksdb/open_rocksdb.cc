// Opening a RocksdbStore: everything that may be wrong with a directory is said here in words.
#include "base/private_files.h"
#include "store/rocksdb/rocksdb_fault.h"
#include "store/rocksdb/rocksdb_store.h"
#include "store/rocksdb/tuning.h"
#include "store/rocksdb/waiting_store.h"

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
    return invalid(fmt::format("the store path {} is a file; a rocksdb store needs a directory of its own", path));
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

// A killed process may have left the end of its log unsynced. What was read back from there is found by claims and
// counted by the witness from now on: a power cut must not take it away again.
Status sync_logs(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() != ".log") continue;
    const int fd = ::open(at->path().c_str(), O_RDONLY | O_CLOEXEC);
    const bool synced = fd >= 0 && ::fdatasync(fd) == 0;
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    // RocksDB may have deleted a log that was of no use any more.
    if (!synced && reason != ENOENT) {
      return unavailable(fmt::format("{} cannot be synced: {}", at->path().native(), std::strerror(reason)));
    }
  }
  return ok_status();
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

// After a shortage the store itself says when to go on.
class RecoversWhenTold final : public rocksdb::EventListener {
 public:
  // RocksDB calls it fatal when a new log cannot be created, since unsynced writes in the old one could be lost. There
  // are none: each batch is synced.
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* error) override {
    if (reason == rocksdb::BackgroundErrorReason::kMemTable && error->IsNoSpace()) {
      *error = rocksdb::Status(*error, rocksdb::Status::Severity::kHardError);
    }
  }
  // It would look every few seconds by itself whether there is room, and refuse to be told so meanwhile.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/, rocksdb::Status /*error*/,
                            bool* by_itself) override {
    *by_itself = false;
  }
};

// The families of an existing database, the default one for a new one.
Result<std::vector<std::string>> family_names(const rocksdb::DBOptions& options, const std::string& path) {
  if (options.env->FileExists(path + "/CURRENT").IsNotFound()) return std::vector{rocksdb::kDefaultColumnFamilyName};
  std::vector<std::string> names;
  const rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(options, path, &names);
  if (!listed.ok()) return opening_fault(listed, path);
  return names;
}

struct Opened {
  std::unique_ptr<rocksdb::DB> db;
  BucketList buckets;
};

Result<Opened> open_database(const rocksdb::DBOptions& options, const rocksdb::ColumnFamilyOptions& bucket_options,
                             const std::string& path) {
  const Result<std::vector<std::string>> names = family_names(options, path);
  if (!names) return names.fault();
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  std::vector<std::optional<BucketId>> ids; // nothing for the default family
  for (const std::string& name : *names) {
    const bool is_default = name == rocksdb::kDefaultColumnFamilyName;
    const std::optional<BucketId> id = is_default ? std::nullopt : bucket_from_name(name);
    if (!is_default && !id) {
      return Fault{FaultKind::newer_format,
                   fmt::format("the store at {} has a part named \"{}\" that this version of oncekey (store format {}) "
                               "does not know: it was written by a newer oncekey or by something else",
                               path, name, kStoreFormat)};
    }
    families.emplace_back(name, bucket_options);
    ids.push_back(id);
  }

  rocksdb::DB* raw = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, families, &handles, &raw);
  if (!status.ok()) return opening_fault(status, path);
  Opened opened{std::unique_ptr<rocksdb::DB>(raw), {}};
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (!ids[i]) {
      raw->DestroyColumnFamilyHandle(handles[i]);
      continue;
    }
    const auto destroy = [raw](rocksdb::ColumnFamilyHandle* family) { raw->DestroyColumnFamilyHandle(family); };
    opened.buckets.push_back({*ids[i], {handles[i], destroy}});
  }
  return opened;
}

} // namespace

Result<std::unique_ptr<Store>> open_rocksdb(const RocksdbOptions& options) {
  const auto open = [options]() -> Result<std::unique_ptr<Store>> {
    auto store = RocksdbStore::open(options);
    if (!store) return std::move(store).fault();
    return std::unique_ptr<Store>(*std::move(store));
  };
  Result<std::unique_ptr<Store>> store = open();
  rocksdb::Env* const env = options.env != nullptr ? options.env : rocksdb::Env::Default();
  if (store || check_room(*env, options.path)) return store;
  const Result<std::optional<Secret>> secret = read_secret(options.path);
  if (!secret || !*secret) return store;
  options.log.error("store_not_opened",
                    {{"reason", store.fault().message},
                     {"next", "keyed requests get 503, others pass; the store is opened when there is room"}});
  return std::unique_ptr<Store>(std::make_unique<WaitingStore>(**secret, std::move(store).fault(), open, options.log));
}

Result<std::unique_ptr<RocksdbStore>> RocksdbStore::open(RocksdbOptions options) {
  if (options.path.empty()) return invalid("a rocksdb store needs a path, as in rocksdb:./oncekey-data");
  const Status prepared = prepare_directory(options.path);
  if (!prepared) return prepared.fault();

  rocksdb::DBOptions database = database_options();
  rocksdb::Env* const system = options.env != nullptr ? options.env : rocksdb::Env::Default();
  auto files = std::make_shared<WatchedFiles>(system->GetFileSystem());
  std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);
  database.env = env.get();
  database.listeners.push_back(std::make_shared<RecoversWhenTold>());
  if (!check_room(*database.env, options.path)) {
    // That is what it is there for.
    const Ballast ballast(options.path);
    if (ballast.drop()) options.log.warning("ballast_dropped", {{"reason", "the disk is full"}});
  }
  if (const Status room = check_room(*database.env, options.path); !room) return room.fault();
  // Where room is short, opening makes no files of what the log holds: it is read back into memory, and the log stays.
  std::uint64_t free = 0;
  const bool told = database.env->GetFreeSpace(options.path, &free).ok();
  database.avoid_flush_during_recovery = told && free < 2 * kLogBytesMax;
  const rocksdb::ColumnFamilyOptions buckets = bucket_options();
  Result<Opened> opened = open_database(database, buckets, options.path);
  if (!opened) return std::move(opened).fault();

  if (const Status synced = sync_logs(options.path); !synced) return synced.fault();

  const StoreAge age = opened->buckets.empty() ? StoreAge::is_new : StoreAge::has_buckets;
  Result<StoreMeta> meta = load_or_make_meta(*opened->db, age, options.path);
  if (!meta) return std::move(meta).fault();
  const Maintenance maintenance = options.maintenance;
  std::unique_ptr<RocksdbStore> store(new RocksdbStore(std::move(options), std::move(files), std::move(env),
                                                       std::move(opened->db), buckets, std::move(opened->buckets),
                                                       *std::move(meta)));
  // Before anything is written: the number of the newest write is compared.
  if (const Status compared = store->look_for_loss(); !compared) return compared.fault();
  // Drops what expired while no process was running, before the first call. On a full disk the next round does it.
  const Status maintained = store->maintain();
  if (!maintained) store->log_.warning("store_maintenance_failed", {{"reason", maintained.fault().message}});
  if (const Status loaded = store->load_indexes_and_fences(); !loaded) return loaded.fault();
  if (maintenance == Maintenance::in_background) {
    store->maintenance_ = std::thread([at = store.get()] { at->maintain_in_background(); });
  }
  return store;
}

} // namespace oncekey
