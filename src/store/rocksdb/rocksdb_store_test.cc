// What only an embedded store on disk can get wrong. All that every store promises is in tests/conformance.
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

namespace oncekey {
namespace {

using ::testing::HasSubstr;

constexpr Millis kLease{60'000};
constexpr Millis kRetention{3'600'000};

RecordId id_of(std::uint64_t number) {
  RecordId id;
  std::memcpy(id.bytes.data(), &number, sizeof number);
  return id;
}

ClaimRequest claim_of(std::uint64_t number) {
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
  void open(rocksdb::Env* env = nullptr) {
    auto opened = RocksdbStore::open(options(env));
    ASSERT_TRUE(opened) << opened.fault().message;
    store_ = *std::move(opened);
  }
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
    auto opened = RocksdbStore::open(std::move(by_hand));
    ASSERT_TRUE(opened) << opened.fault().message;
    store_ = *std::move(opened);
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

// Opening.

TEST_F(RocksdbStoreTest, MakesTheDirectoryAndItsParents) {
  path_ = root_ + "/a/b/c/";
  open();
  EXPECT_TRUE(std::filesystem::exists(root_ + "/a/b/c/CURRENT"));
}

TEST_F(RocksdbStoreTest, AFileInPlaceOfTheDirectoryIsRefused) {
  std::ofstream(path_) << "a file";
  EXPECT_THAT(open_fault().message, HasSubstr("is a file"));
}

TEST_F(RocksdbStoreTest, ADirectoryThatCannotBeMadeIsRefused) {
  std::ofstream(root_ + "/file") << "a file";
  path_ = root_ + "/file/store";
  EXPECT_THAT(open_fault().message, HasSubstr("cannot be created"));
}

TEST_F(RocksdbStoreTest, AFullDiskIsRefusedBeforeAnythingIsOpened) {
  FaultyFiles& files = open_on_faulty_files();
  store_.reset();
  files.is_full = true;
  const Fault fault = open_fault(env_.get());
  EXPECT_EQ(fault.kind, FaultKind::unavailable);
  EXPECT_THAT(fault.message, HasSubstr("is full"));
  files.is_full = false;
  open(env_.get());
}

TEST_F(RocksdbStoreTest, AFullDiskWhileRunningRefusesWritesAndNothingElse) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, "kept"));
  ASSERT_TRUE(claim(2));
  files.out_of_room = true;
  const Result<ClaimAnswer> refused = claim(3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(refused.fault().message, HasSubstr("full"));
  EXPECT_FALSE(complete(2, "an answer"));
  EXPECT_FALSE(store_->healthy());
  // Reading goes on, and what could not be written did not happen.
  EXPECT_EQ(find(1)->record->response->body, "kept");
  EXPECT_EQ(find(2)->record->state, RecordState::in_progress);
  EXPECT_EQ(find(3), std::nullopt);
  EXPECT_EQ(fatal_calls_, 0);

  files.out_of_room = false;
  ASSERT_TRUE(store_->maintain());
  EXPECT_TRUE(store_->healthy());
  const Result<FenceAnswer> late = complete(2, "an answer");
  ASSERT_TRUE(late) << late.fault().message;
  EXPECT_EQ(*late, FenceAnswer::done);
  ASSERT_TRUE(claim(3));
  store_.reset();
  open(env_.get());
  EXPECT_EQ(find(2)->record->response->body, "an answer");
  EXPECT_TRUE(find(3));
}

TEST_F(RocksdbStoreTest, ALackOfDescriptorsIsOutlivedToo) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.out_of_descriptors = true;
  // A claim in a bucket that does not exist yet needs no file; filling the memtable does.
  std::uint64_t number = 2;
  bool refused = false;
  for (; number < 200 && !refused; ++number) {
    refused = !claim(number) || !complete(number, std::string(std::size_t{1} << 20, 'x'));
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(fatal_calls_, 0);
  files.out_of_descriptors = false;
  for (int round = 0; round < 100 && !store_->healthy(); ++round) {
    (void)store_->maintain();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const Result<ClaimAnswer> again = claim(1000);
  EXPECT_TRUE(again) << again.fault().message;
  EXPECT_TRUE(find(1));
}

TEST_F(RocksdbStoreTest, ASecondStoreOnTheSameDirectoryIsRefused) {
  open();
  const Fault fault = open_fault();
  EXPECT_EQ(fault.kind, FaultKind::conflict);
  EXPECT_THAT(fault.message, HasSubstr("is in use by another process"));
}

TEST_F(RocksdbStoreTest, AnotherProcessOnTheSameDirectoryIsRefused) {
  OtherProcess other("DISABLED_OtherProcessHoldsTheStore", path_);
  ASSERT_TRUE(other.next_number()) << "it has opened the store";
  EXPECT_THAT(open_fault().message, HasSubstr("is in use by another process"));
  other.kill();
  open();
}

TEST_F(RocksdbStoreTest, ANewerStoreFormatIsRefusedNamingBothVersions) {
  open();
  store_.reset();
  tamper([](rocksdb::DB& db, const auto&) {
    ASSERT_TRUE(db.Put({}, std::string(kMetaKey), encode_meta(kStoreFormat + 6, StoreId{}, HashBytes{})).ok());
  });
  const Fault fault = open_fault();
  EXPECT_EQ(fault.kind, FaultKind::newer_format);
  EXPECT_THAT(fault.message, HasSubstr("version 7"));
  EXPECT_THAT(fault.message, HasSubstr("up to 1"));
}

TEST_F(RocksdbStoreTest, RecordsWithoutMetaDataAreDamageNotANewStore) {
  open();
  ASSERT_TRUE(claim(1));
  store_.reset();
  tamper([](rocksdb::DB& db, const auto&) { ASSERT_TRUE(db.Delete({}, std::string(kMetaKey)).ok()); });
  EXPECT_EQ(open_fault().kind, FaultKind::corrupt);
}

TEST_F(RocksdbStoreTest, DamagedMetaDataIsRefused) {
  open();
  store_.reset();
  tamper([](rocksdb::DB& db, const auto&) {
    std::string meta = encode_meta(kStoreFormat, StoreId{}, HashBytes{});
    meta[20] ^= 1;
    ASSERT_TRUE(db.Put({}, std::string(kMetaKey), meta).ok());
  });
  EXPECT_EQ(open_fault().kind, FaultKind::corrupt);
}

// Damage.

TEST_F(RocksdbStoreTest, ADamagedRecordIsAFaultAndNeverAbsent) {
  open();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, "the answer"));
  store_.reset();
  tamper([](rocksdb::DB& db, const auto& families) {
    int damaged = 0;
    for (rocksdb::ColumnFamilyHandle* family : families) {
      std::string value;
      if (!db.Get({}, family, key_slice(id_of(1)), &value).ok()) continue;
      value[value.size() / 2] ^= 4;
      ASSERT_TRUE(db.Put({}, family, key_slice(id_of(1)), value).ok());
      ++damaged;
    }
    EXPECT_EQ(damaged, 1) << "a record is in one bucket";
  });
  open();
  const Result<ClaimAnswer> answer = claim(1);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::corrupt);
  EXPECT_FALSE(complete(1, "another answer"));
}

TEST_F(RocksdbStoreTest, ATornTailOfTheLogIsToleratedAndDamageBeforeItIsRefused) {
  open();
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(claim(i));
  store_.reset();
  std::filesystem::path log;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    if (entry.path().extension() == ".log" && entry.file_size() > 1000) log = entry.path();
  }
  ASSERT_FALSE(log.empty());
  const std::filesystem::path copy = root_ + "/copy";
  std::filesystem::copy(path_, copy);

  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 3);
  open(); // the last write was the clock's
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_TRUE(find(i)) << i;
  store_.reset();

  path_ = copy.string();
  std::fstream file(copy / log.filename(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(1200);
  file.write("damage", 6);
  file.close();
  EXPECT_EQ(open_fault().kind, FaultKind::corrupt);
}

// Other users of the machine_.

TEST_F(RocksdbStoreTest, TheFolderAndItsFilesAreTheOwnersAlone) {
  const mode_t before = ::umask(077); // as serve sets it
  open();
  ASSERT_TRUE(claim(1));
  ::umask(before);
  EXPECT_EQ(mode_of(path_), 0700u);
  EXPECT_EQ(mode_of(path_ + ".witness"), 0600u);
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
  }
}

TEST_F(RocksdbStoreTest, WhatOthersCouldReadIsNarrowedAtTheStart) {
  open();
  store_.reset();
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    ASSERT_EQ(::chmod(entry.path().c_str(), 0644), 0);
  const mode_t before = ::umask(077);
  open();
  ::umask(before);
  EXPECT_EQ(mode_of(path_), 0700u);
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
  }
}

// The secret.

TEST_F(RocksdbStoreTest, TheSecretIsInAFileAndNotInTheDatabase) {
  open();
  const Secret secret = store_->secret();
  store_.reset();
  const std::string raw(reinterpret_cast<const char*>(secret.data()), secret.size());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    if (entry.path().filename() == "secret") continue;
    const std::string content = content_of(entry.path());
    EXPECT_EQ(content.find(raw), std::string::npos) << entry.path();
    EXPECT_EQ(content.find(hex_encode(raw)), std::string::npos) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 3);
  EXPECT_EQ(content_of(path_ + "/secret"), hex_encode(raw) + "\n");
  open();
  EXPECT_EQ(store_->secret(), secret);
}

TEST_F(RocksdbStoreTest, AMissingSecretIsRefusedWithWhatToDoAndNotMadeAnew) {
  open();
  store_.reset();
  std::filesystem::rename(path_ + "/secret", root_ + "/kept");
  EXPECT_THAT(open_fault().message, HasSubstr("secret is missing"));
  EXPECT_THAT(open_fault().message, HasSubstr("put the file back"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/secret"));
  std::filesystem::rename(root_ + "/kept", path_ + "/secret");
  open();
}

TEST_F(RocksdbStoreTest, TheSecretOfAnotherStoreIsRefused) {
  open();
  store_.reset();
  std::ofstream(path_ + "/secret") << std::string(64, 'a') << "\n";
  EXPECT_THAT(open_fault().message, HasSubstr("secret of another store"));
  std::ofstream(path_ + "/secret") << "abc\n";
  EXPECT_THAT(open_fault().message, HasSubstr("expected 64 hexadecimal digits"));
}

TEST_F(RocksdbStoreTest, ASecretThatACrashLeftBeforeTheStoreWasMadeIsUsed) {
  std::filesystem::create_directory(path_);
  std::ofstream(path_ + "/secret") << std::string(64, 'b') << "\n";
  open();
  EXPECT_EQ(store_->secret()[0], 0xbb);
}

// Older copies.

TEST_F(RocksdbStoreTest, AnOlderCopyTakesNoClaimsAndGoesOnReplaying) {
  open();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, "the answer"));
  ASSERT_TRUE(claim(2));
  store_.reset();
  copy_folder(path_, root_ + "/copy");
  open();
  ASSERT_TRUE(claim(3));
  store_.reset();
  put_back(root_ + "/copy");

  open();
  EXPECT_THAT(refusal(3), HasSubstr("an older copy was put back"));
  EXPECT_THAT(refusal(3), HasSubstr("oncekey store accept-loss"));
  EXPECT_FALSE(store_->healthy());
  EXPECT_TRUE(replays(1)) << "what it remembers it answers";
  EXPECT_TRUE(complete(2, "the owner of before")) << "and what was begun may end";

  store_.reset();
  open(); // more was written in the meantime than was missing
  EXPECT_THAT(refusal(3), HasSubstr("an older copy was put back"));
}

TEST_F(RocksdbStoreTest, AnAcceptedLossIsOver) {
  open();
  store_.reset();
  copy_folder(path_, root_ + "/copy");
  open();
  ASSERT_TRUE(claim(3));
  store_.reset();
  put_back(root_ + "/copy");
  open();
  ASSERT_FALSE(refusal(3).empty());
  store_.reset();
  const Result<LossAcceptance> accepted = accept_lost_memory_rocksdb(path_);
  ASSERT_TRUE(accepted);
  EXPECT_EQ(*accepted, LossAcceptance::noted) << "no process has it open";
  open();
  EXPECT_TRUE(store_->healthy());
  EXPECT_TRUE(claim(3));
  store_.reset();
  open();
  EXPECT_TRUE(claim(4)) << "and it stays over";
}

TEST_F(RocksdbStoreTest, TheFolderThatWasMissingMayBePutBack) {
  open();
  store_.reset();
  copy_folder(path_, root_ + "/copy");
  open();
  ASSERT_TRUE(claim(3));
  store_.reset();
  copy_folder(path_, root_ + "/newest");
  put_back(root_ + "/copy");
  open();
  ASSERT_FALSE(refusal(3).empty());
  store_.reset();
  put_back(root_ + "/newest");
  open();
  EXPECT_TRUE(store_->healthy());
  EXPECT_TRUE(claim(4));
}

TEST_F(RocksdbStoreTest, AnEmptiedFolderIsALossToo) {
  open();
  store_.reset();
  std::filesystem::remove_all(path_);
  open();
  EXPECT_THAT(refusal(1), HasSubstr("the folder was emptied or exchanged"));
}

TEST_F(RocksdbStoreTest, AMissingOrTornWitnessIsMadeAnew) {
  for (const bool torn : {false, true}) {
    open();
    ASSERT_TRUE(claim(1));
    store_.reset();
    ASSERT_TRUE(std::filesystem::remove(path_ + ".witness"));
    if (torn) std::ofstream(path_ + ".witness") << "oncekey wit";
    open();
    EXPECT_TRUE(store_->healthy());
    store_.reset();
    EXPECT_TRUE(decode_witness(content_of(path_ + ".witness")));
  }
}

TEST_F(RocksdbStoreTest, ANoteThatNothingWasLostForDoesNotAcceptALaterLoss) {
  open();
  store_.reset();
  copy_folder(path_, root_ + "/copy");
  ASSERT_TRUE(accept_lost_memory_rocksdb(path_));
  open();
  ASSERT_TRUE(claim(1));
  store_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_ + "/accept-loss"));
  put_back(root_ + "/copy");
  open();
  EXPECT_FALSE(refusal(1).empty());
}

TEST_F(RocksdbStoreTest, AKillLeavesTheWitnessBehindTheStoreAndNeverAhead) {
  OtherProcess other("DISABLED_OtherProcessCompletesKeys", path_);
  while (const std::optional<std::uint64_t> acknowledged = other.next_number()) {
    if (*acknowledged == 200) other.kill();
  }
  open();
  EXPECT_TRUE(store_->healthy());
}

// The clock.

TEST_F(RocksdbStoreTest, AClockThatIsAheadAfterARebootForgetsNothingUntilItIsSynchronised) {
  open_on_the_machine();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, "the answer"));
  store_.reset();
  machine_.reboot(2 * kRetention, /*synchronised=*/false);
  open_on_the_machine();
  EXPECT_TRUE(replays(1));
  ASSERT_TRUE(store_->maintain());
  EXPECT_TRUE(replays(1)) << "its bucket is not dropped either";
  machine_.wall_is_right = true;
  ASSERT_TRUE(store_->maintain());
  EXPECT_FALSE(find(1)) << "the machine really was off for so long";
}

TEST_F(RocksdbStoreTest, AClockThatCatchesUpTakesNothingFromWhatWasWrittenBefore) {
  open_on_the_machine();
  store_.reset();
  machine_.reboot(2 * kRetention, /*synchronised=*/false);
  open_on_the_machine();
  ASSERT_TRUE(claim(1));
  machine_.wall_is_right = true;
  ASSERT_TRUE(store_->maintain());
  EXPECT_TRUE(find(1)) << "claimed a moment ago";
}

// Durability.

TEST_F(RocksdbStoreTest, NothingIsVisibleBeforeItIsDurable) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  std::promise<void> answered;
  store_->claim(claim_of(2), [&](const Result<ClaimAnswer>&) { answered.set_value(); });
  files.wait_for_a_sync(); // the batch is in the log's file and its sync has not returned
  EXPECT_FALSE(find(2));
  std::future<void> answer = answered.get_future();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  files.let_all_through();
  answer.wait();
  EXPECT_TRUE(find(2));
  store_.reset();
}

TEST_F(RocksdbStoreTest, AFailedSyncAcknowledgesNothingIsNotTriedAgainAndSaysWhy) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.sync_fails = true;
  std::atomic<int> answers = 0;
  store_->claim(claim_of(2), [&](const Result<ClaimAnswer>&) { ++answers; });
  EXPECT_THAT(fatal_reason_.get_future().get(), HasSubstr("the disk went bad"));
  files.sync_fails = false; // a disk that pretends to be well again is not believed
  const Result<ClaimAnswer> later = claim(3);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.fault().kind, FaultKind::unavailable);
  EXPECT_FALSE(complete(1, "late"));
  EXPECT_FALSE(store_->healthy());
  store_.reset();
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(fatal_calls_, 1);
  EXPECT_EQ(files.failed_syncs, 1);
}

TEST_F(RocksdbStoreTest, KillNineLosesNothingThatWasAcknowledged) {
  OtherProcess other("DISABLED_OtherProcessCompletesKeys", path_);
  std::optional<std::uint64_t> last;
  while (const std::optional<std::uint64_t> acknowledged = other.next_number()) {
    last = acknowledged;
    if (*last == 200) other.kill(); // what it said before is still in the pipe, and counts
  }
  ASSERT_TRUE(last);
  ASSERT_GE(*last, 200u);
  open();
  for (std::uint64_t i = 0; i <= *last; ++i) {
    const std::optional<Found> found = find(i);
    ASSERT_TRUE(found) << i;
    ASSERT_EQ(found->record->response->body, "answer " + std::to_string(i));
  }
}

// What the other process does. Not tests: run by name, with the directory and a pipe from the environment.

TEST_F(RocksdbStoreTest, DISABLED_OtherProcessHoldsTheStore) {
  path_ = OtherProcess::given_path();
  open();
  OtherProcess::report(0);
  while (true) ::pause();
}

TEST_F(RocksdbStoreTest, DISABLED_OtherProcessCompletesKeys) {
  path_ = OtherProcess::given_path();
  open();
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(claim(i));
    ASSERT_TRUE(complete(i, "answer " + std::to_string(i)));
    OtherProcess::report(i);
  }
}

// The writer.

TEST_F(RocksdbStoreTest, CallsMadeDuringASyncShareTheNextOne) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  std::atomic<int> answers = 0;
  std::promise<void> all;
  const auto count = [&](const Result<ClaimAnswer>& answer) {
    EXPECT_TRUE(answer);
    if (++answers == 101) all.set_value();
  };
  const std::uint64_t before = store_->stats().syncs;
  store_->claim(claim_of(2), count);
  files.wait_for_a_sync();
  for (std::uint64_t i = 0; i < 100; ++i) store_->claim(claim_of(100 + i), count);
  files.let_all_through();
  all.get_future().wait();
  EXPECT_EQ(store_->stats().syncs - before, 2u);
  store_.reset();
}

TEST_F(RocksdbStoreTest, CallsOnOneKeyInOneBatchSeeEachOther) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  files.wait_for_a_sync();

  std::promise<Result<ClaimAnswer>> first;
  std::promise<Result<FenceAnswer>> completed;
  std::promise<Result<ClaimAnswer>> second;
  StoredResponse response;
  response.status = 200;
  response.body = "within the batch";
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { first.set_value(std::move(answer)); });
  store_->complete({id_of(7), fence_of(1) + 2}, response,
                   [&](Result<FenceAnswer> answer) { completed.set_value(std::move(answer)); });
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { second.set_value(std::move(answer)); });
  files.let_all_through();
  EXPECT_TRUE(std::holds_alternative<Claimed>(*first.get_future().get()));
  EXPECT_EQ(*completed.get_future().get(), FenceAnswer::done);
  const Result<ClaimAnswer> found = second.get_future().get();
  ASSERT_TRUE(std::holds_alternative<Found>(*found));
  EXPECT_EQ(std::get<Found>(*found).record->response->body, "within the batch");
  store_.reset();
}

TEST_F(RocksdbStoreTest, AClaimThatLookedBeforeABatchDoesNotMissWhatTheBatchWrote) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  files.wait_for_a_sync();
  // The next batch claims and completes 7, so that nothing of it stays in the writer's memory.
  store_->claim(claim_of(7), [](const Result<ClaimAnswer>&) {});
  store_->complete({id_of(7), fence_of(1) + 2}, {}, [](const Result<FenceAnswer>&) {});
  files.let_one_through();
  files.wait_for_a_sync();
  // This claim looks while that batch is not visible yet, and is decided after it.
  std::promise<Result<ClaimAnswer>> late;
  store_->claim(claim_of(7), [&](Result<ClaimAnswer> answer) { late.set_value(std::move(answer)); });
  files.let_all_through();
  const Result<ClaimAnswer> answer = late.get_future().get();
  ASSERT_TRUE(answer);
  EXPECT_TRUE(std::holds_alternative<Found>(*answer)) << "it would have been executed twice";
  store_.reset();
}

TEST_F(RocksdbStoreTest, AFullQueueRefusesNewClaimsAndStillTakesAnswers) {
  FaultyFiles& files = open_on_faulty_files();
  ASSERT_TRUE(claim(1));
  files.hold_syncs();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  files.wait_for_a_sync();
  std::atomic<std::size_t> refused = 0;
  for (std::uint64_t i = 0; i < kQueuedCallsMax + 10; ++i) {
    store_->renew({id_of(1), 1}, kLease, [&](const Result<FenceAnswer>& answer) { refused += answer ? 0 : 1; });
  }
  EXPECT_EQ(refused, 0u);
  const Result<ClaimAnswer> answer = claim(3);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(answer.fault().message, HasSubstr("overloaded"));
  files.let_all_through();
  ASSERT_TRUE(complete(1, "in the end"));
  store_.reset();
}

} // namespace
} // namespace oncekey
