// The embedded store under test: on a disk that fails, beside another process, on a machine with clocks of its own.
#pragma once

#include "store/rocksdb/rocksdb_store.h"

#include "core/record_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/file_system.h>

#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <semaphore>

namespace oncekey::rocksdb_tests {

using ::testing::HasSubstr;

constexpr Millis kLease{60'000};
constexpr Millis kRetention{3'600'000};

inline RecordId id_of(std::uint64_t number) {
  RecordId id;
  std::memcpy(id.bytes.data(), &number, sizeof number);
  return id;
}

inline ClaimRequest claim_of(std::uint64_t number) {
  ClaimRequest request;
  request.id = id_of(number);
  request.lease = kLease;
  request.retention = kRetention;
  return request;
}

// A file system whose logs can be told to fail their sync, or to wait in it, and that can be full.
class FaultyFiles : public rocksdb::FileSystemWrapper {
 public:
  FaultyFiles() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "FaultyFiles"; }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    if (out_of_descriptors) return rocksdb::IOStatus::IOError("While open a file for appending", std::strerror(EMFILE));
    rocksdb::IOStatus made = target()->NewWritableFile(name, options, file, context);
    if (made.ok() && name.ends_with(".log")) *file = std::make_unique<Log>(std::move(*file), *this);
    return made;
  }

  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options, std::uint64_t* free,
                                 rocksdb::IODebugContext* context) override {
    rocksdb::IOStatus told = target()->GetFreeSpace(path, options, free, context);
    if (is_full) *free = 4096;
    return told;
  }

  std::atomic<bool> is_full = false;
  std::atomic<bool> out_of_room = false;        // logs cannot be extended
  std::atomic<bool> out_of_descriptors = false; // no file can be made
  std::atomic<bool> sync_fails = false;
  std::atomic<int> failed_syncs = 0;

  // From now on every sync waits to be let through.
  void hold_syncs() { holding_ = true; }
  void wait_for_a_sync() { waiting_.acquire(); }
  void let_one_through() { let_through_.release(); }
  // Ends the holding while one sync waits.
  void let_all_through() {
    holding_ = false;
    let_one_through();
  }

 private:
  class Log : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    Log(std::unique_ptr<rocksdb::FSWritableFile> file, FaultyFiles& files)
        : FSWritableFileOwnerWrapper(std::move(file)), files_(files) {}
    using FSWritableFileOwnerWrapper::Append;
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* context) override {
      if (files_.out_of_room) return rocksdb::IOStatus::NoSpace("While appending to file", std::strerror(ENOSPC));
      return target()->Append(data, options, context);
    }
    rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* context) override {
      if (files_.holding_) {
        files_.waiting_.release();
        files_.let_through_.acquire();
      }
      if (files_.sync_fails) {
        ++files_.failed_syncs;
        return rocksdb::IOStatus::IOError("the disk went bad");
      }
      return target()->Sync(options, context);
    }

   private:
    FaultyFiles& files_;
  };

  std::atomic<bool> holding_ = false;
  std::counting_semaphore<> waiting_{0};
  std::counting_semaphore<> let_through_{0};
};

// This program once more, running one of the DISABLED_ bodies below on the same directory and reporting numbers through
// a pipe. A fresh start, not a bare fork: RocksDB's threads do not survive one.
class OtherProcess {
 public:
  OtherProcess(const std::string& body, const std::string& path) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    const std::string filter = "--gtest_filter=RocksdbStoreTest." + body;
    ::setenv("ONCEKEY_TEST_PATH", path.c_str(), 1);
    ::setenv("ONCEKEY_TEST_PIPE", std::to_string(ends[1]).c_str(), 1);
    const char* const arguments[] = {"/proc/self/exe", filter.c_str(), "--gtest_also_run_disabled_tests",
                                     "--gtest_brief=1", nullptr};
    if (::posix_spawn(&pid_, arguments[0], nullptr, nullptr, const_cast<char* const*>(arguments), environ) != 0)
      pid_ = -1;
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  ~OtherProcess() {
    kill();
    ::close(pipe_);
  }

  // The next number it reports; nothing once it has ended.
  std::optional<std::uint64_t> next_number() {
    std::uint64_t number = 0;
    if (::read(pipe_, &number, sizeof number) != sizeof number) return std::nullopt;
    return number;
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // For the other side.
  static std::string given_path() {
    const char* const path = std::getenv("ONCEKEY_TEST_PATH");
    return path != nullptr ? path : "";
  }
  static void report(std::uint64_t number) {
    const char* const pipe = std::getenv("ONCEKEY_TEST_PIPE");
    if (pipe == nullptr || ::write(std::atoi(pipe), &number, sizeof number) != sizeof number) ::_exit(1);
  }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

// A machine whose clocks are turned by hand.
struct Machine {
  Millis since_boot{5'000};
  Time wall{Millis{1'700'000'000'000}};
  bool wall_is_right = true;
  int boot = 1;

  void reboot(Millis off, bool synchronised) {
    ++boot;
    since_boot = Millis{10};
    wall += off;
    wall_is_right = synchronised;
  }
  ClockSources sources() {
    return {[this] { return since_boot; }, [this] { return wall; }, "boot " + std::to_string(boot),
            [this] { return wall_is_right; }};
  }
};

class RocksdbStoreTest : public ::testing::Test {
 protected:
  Machine machine_; // outlives the store, whose threads read its clocks

  RocksdbStoreTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-rocksdb-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    path_ = root_ + "/store";
  }
  ~RocksdbStoreTest() override {
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  RocksdbOptions options(rocksdb::Env* env = nullptr) {
    return {.path = path_,
            .log = log_,
            .on_fatal = [this](const std::string& reason) { ++fatal_calls_, fatal_reason_.set_value(reason); },
            .env = env};
  }
  void open(RocksdbOptions with) {
    auto opened = RocksdbStore::open(std::move(with));
    ASSERT_TRUE(opened) << opened.fault().message;
    store_ = *std::move(opened);
  }
  void open(rocksdb::Env* env = nullptr) { open(options(env)); }
  FaultyFiles& open_on_faulty_files() {
    files_ = std::make_shared<FaultyFiles>();
    env_ = rocksdb::NewCompositeEnv(files_);
    open(env_.get());
    return *files_;
  }
  void open_on_the_machine() {
    RocksdbOptions by_hand = options();
    by_hand.clock = machine_.sources();
    by_hand.maintenance = Maintenance::by_hand;
    open(std::move(by_hand));
  }
  Fault open_fault(rocksdb::Env* env = nullptr) {
    auto opened = RocksdbStore::open(options(env));
    if (opened) return {FaultKind::conflict, "it opened"};
    return opened.fault();
  }

  Result<ClaimAnswer> claim(std::uint64_t number) {
    std::promise<Result<ClaimAnswer>> answer;
    store_->claim(claim_of(number), [&](Result<ClaimAnswer> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }
  // Of the record as it is; 0 if it cannot be read.
  std::uint64_t fence_of(std::uint64_t number) {
    std::uint64_t fence = 0;
    store_->find(id_of(number), Interest::none, [&](const Result<std::optional<Found>>& found) {
      if (found && *found) fence = (*found)->record->fence;
    });
    return fence;
  }
  Result<FenceAnswer> complete(std::uint64_t number, std::string body) {
    std::promise<Result<FenceAnswer>> answer;
    StoredResponse response;
    response.status = 200;
    response.body = std::move(body);
    store_->complete({id_of(number), fence_of(number)}, std::move(response),
                     [&](Result<FenceAnswer> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }
  std::optional<Found> find(std::uint64_t number) {
    std::optional<Found> found;
    store_->find(id_of(number), Interest::none, [&](Result<std::optional<Found>> result) {
      ASSERT_TRUE(result) << result.fault().message;
      found = *std::move(result);
    });
    return found;
  }

  bool replays(std::uint64_t number) {
    const Result<ClaimAnswer> answer = claim(number);
    return answer && std::holds_alternative<Found>(*answer);
  }
  // Why it takes no claim of that number; empty if it does.
  std::string refusal(std::uint64_t number) {
    const Result<ClaimAnswer> answer = claim(number);
    return answer ? "" : answer.fault().message;
  }
  static mode_t mode_of(const std::string& path) {
    struct stat file {};
    return ::stat(path.c_str(), &file) == 0 ? file.st_mode & 07777 : 0;
  }
  static std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void copy_folder(const std::string& from, const std::string& to) {
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  }
  void put_back(const std::string& copy) {
    std::filesystem::remove_all(path_);
    copy_folder(copy, path_);
  }

  // Changes the database behind the store's back, while it is closed: `change` gets every family.
  void tamper(const std::function<void(rocksdb::DB&, const std::vector<rocksdb::ColumnFamilyHandle*>&)>& change) {
    std::vector<std::string> names;
    ASSERT_TRUE(rocksdb::DB::ListColumnFamilies({}, path_, &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(rocksdb::DBOptions(), path_, families, &handles, &db).ok());
    change(*db, handles);
    for (rocksdb::ColumnFamilyHandle* handle : handles) db->DestroyColumnFamilyHandle(handle);
    delete db;
  }

  Log log_{LogLevel::error};
  std::string root_;
  std::string path_;
  std::shared_ptr<FaultyFiles> files_;
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<RocksdbStore> store_;
  std::atomic<int> fatal_calls_ = 0;
  std::promise<std::string> fatal_reason_;
};

} // namespace oncekey::rocksdb_tests
