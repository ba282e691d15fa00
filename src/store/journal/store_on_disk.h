// The embedded store under test: on a disk that fails, beside another process, on a machine with clocks of its own.
#pragma once

#include "store/journal/journal_store.h"

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
#include <set>

namespace oncekey::journal_tests {

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

// The disk under the log, which can be told to fail its writes, or to wait in them.
class FaultyLog {
 public:
  std::atomic<bool> fails = false;
  std::atomic<int> failed = 0;

  // From now on every write waits to be let through.
  void hold() { holding_ = true; }
  void wait_for_a_write() { waiting_.acquire(); }
  void let_one_through() { let_through_.release(); }
  // Ends the holding while one write waits.
  void let_all_through() {
    holding_ = false;
    let_one_through();
  }

  std::unique_ptr<DurableWriter> make_writer(DurableWriter::Written written) {
    return std::make_unique<Writer>(*this, std::move(written));
  }

 private:
  class Writer final : public DurableWriter {
   public:
    Writer(FaultyLog& log, Written written) : log_(log), written_(std::move(written)) {}
    void write(int file, std::span<const char> bytes, std::uint64_t offset) override {
      ++begun_;
      std::thread([this, file, bytes, offset] {
        if (log_.holding_) {
          log_.waiting_.release();
          log_.let_through_.acquire();
        }
        const bool failing = log_.fails;
        if (failing) ++log_.failed;
        if (!failing) {
          EXPECT_EQ(::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset)), std::ssize(bytes));
        }
        written_(failing ? EIO : 0);
        ++ended_;
        ended_.notify_all();
      }).detach();
    }
    void wait() override {
      const int begun = begun_;
      for (int ended = ended_; ended < begun; ended = ended_) ended_.wait(ended);
    }
    ~Writer() override { wait(); }

   private:
    FaultyLog& log_;
    const Written written_;
    std::atomic<int> begun_ = 0;
    std::atomic<int> ended_ = 0;
  };

  std::atomic<bool> holding_ = false;
  std::counting_semaphore<> waiting_{0};
  std::counting_semaphore<> let_through_{0};
};

// The file system under RocksDB, which can be full or out of descriptors.
class FaultyFiles : public rocksdb::FileSystemWrapper {
 public:
  FaultyFiles() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "FaultyFiles"; }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    if (out_of_descriptors) return rocksdb::IOStatus::IOError("While open a file for appending", std::strerror(EMFILE));
    if (is_full) return rocksdb::IOStatus::NoSpace("While appending to file", std::strerror(ENOSPC));
    return target()->NewWritableFile(name, options, file, context);
  }
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options, std::uint64_t* free,
                                 rocksdb::IODebugContext* context) override {
    rocksdb::IOStatus told = target()->GetFreeSpace(path, options, free, context);
    if (is_full) *free = 4096;
    return told;
  }

  std::atomic<bool> is_full = false;
  std::atomic<bool> out_of_descriptors = false; // no file can be made
};

// This program once more, running one of the DISABLED_ bodies below on the same directory and reporting numbers through
// a pipe. A fresh start, not a bare fork: threads do not survive one.
class OtherProcess {
 public:
  OtherProcess(const std::string& body, const std::string& path, const std::string& suite = "JournalStoreTest") {
    int ends[2];
    if (::pipe(ends) != 0) return;
    const std::string filter = "--gtest_filter=" + suite + "." + body;
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

class JournalStoreTest : public ::testing::Test {
 protected:
  Machine machine_; // outlives the store, whose threads read its clocks

  JournalStoreTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-store-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    path_ = root_ + "/store";
  }
  ~JournalStoreTest() override {
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  JournalStoreOptions options(rocksdb::Env* env = nullptr) {
    return {.path = path_,
            .log = log_,
            .on_fatal = [this](const std::string& reason) { ++fatal_calls_, fatal_reason_.set_value(reason); },
            .env = env,
            .segment_bytes = std::size_t{1} << 20};
  }
  void open(JournalStoreOptions with) {
    auto opened = JournalStore::open(std::move(with));
    ASSERT_TRUE(opened) << opened.fault().message;
    store_ = *std::move(opened);
  }
  void open(rocksdb::Env* env = nullptr) { open(options(env)); }
  FaultyLog& open_on_a_faulty_log(std::size_t segment_bytes = std::size_t{1} << 20) {
    JournalStoreOptions with = options();
    with.segment_bytes = segment_bytes;
    with.make_writer = [this](DurableWriter::Written written) { return faulty_log_.make_writer(std::move(written)); };
    open(std::move(with));
    return faulty_log_;
  }
  FaultyFiles& open_on_faulty_files() {
    files_ = std::make_shared<FaultyFiles>();
    env_ = rocksdb::NewCompositeEnv(files_);
    open(env_.get());
    return *files_;
  }
  // Brings what the store has to sorted files: what a start finds in the log is sealed.
  void seal() {
    store_.reset();
    open();
    while (store_->stats().buckets == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    store_.reset(); // once the sealing is over
    open();
  }
  void open_on_the_machine() {
    JournalStoreOptions by_hand = options();
    by_hand.clock = machine_.sources();
    by_hand.maintenance = Maintenance::by_hand;
    open(std::move(by_hand));
  }
  Fault open_fault(rocksdb::Env* env = nullptr) {
    auto opened = JournalStore::open(options(env));
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
    const std::optional<Found> found = find(number);
    return found ? found->record->fence : 0;
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
  // Nothing if it is absent or cannot be read.
  std::optional<Found> find(std::uint64_t number) {
    std::promise<std::optional<Found>> found;
    store_->find(id_of(number), Interest::none, [&](Result<std::optional<Found>> result) {
      found.set_value(result ? *std::move(result) : std::nullopt);
    });
    return found.get_future().get();
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

  // Changes some bytes of a file behind the store's back, while it is closed.
  static void overwrite(const std::filesystem::path& path, std::size_t at, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(bytes.data(), std::ssize(bytes));
    ASSERT_TRUE(file);
  }
  // The only segment of the log.
  std::filesystem::path segment() const { return path_ + "/log/000000.segment"; }

  FaultyLog faulty_log_; // outlives the store
  Log log_{LogLevel::error};
  std::string root_;
  std::string path_;
  std::shared_ptr<FaultyFiles> files_;
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<JournalStore> store_;
  std::atomic<int> fatal_calls_ = 0;
  std::promise<std::string> fatal_reason_;
};

} // namespace oncekey::journal_tests
