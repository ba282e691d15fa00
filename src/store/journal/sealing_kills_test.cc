// kill -9 at every step of sealing segments and using them again: before each change of a file by RocksDB, and before
// and after each write of the log.
#include "store/journal/store_on_disk.h"

namespace oncekey::journal_tests {
namespace {

constexpr std::size_t kSmallSegmentBytes = std::size_t{64} << 10;
constexpr std::uint64_t kKeys = 60; // enough to use segments again
constexpr const char* kKillAt = "ONCEKEY_TEST_KILL_AT";

std::string body_of(std::uint64_t number) {
  return std::to_string(number) + std::string(3000, static_cast<char>('a' + number % 26));
}

// Counts steps, and ends the process before one of them, whose name it leaves in a file.
class KilledAtAStep {
 public:
  KilledAtAStep(std::uint64_t step, std::string note) : step_(step), note_(std::move(note)) {}
  void begin() { counting_ = true; }
  void reach(const char* name) {
    if (!counting_ || ++reached_ != step_) return;
    std::ofstream(note_) << name;
    ::kill(::getpid(), SIGKILL);
    while (true) ::pause();
  }

 private:
  const std::uint64_t step_;
  const std::string note_;
  std::atomic<bool> counting_ = false;
  std::atomic<std::uint64_t> reached_ = 0;
};

class StepwiseFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  StepwiseFile(std::unique_ptr<rocksdb::FSWritableFile>&& file, KilledAtAStep& steps)
      : FSWritableFileOwnerWrapper(std::move(file)), steps_(steps) {}
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* context) override {
    steps_.reach("sync a file");
    return FSWritableFileOwnerWrapper::Sync(options, context);
  }
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* context) override {
    steps_.reach("sync a file");
    return FSWritableFileOwnerWrapper::Fsync(options, context);
  }
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* context) override {
    steps_.reach("close a file");
    return FSWritableFileOwnerWrapper::Close(options, context);
  }

 private:
  KilledAtAStep& steps_;
};

class StepwiseFiles final : public rocksdb::FileSystemWrapper {
 public:
  explicit StepwiseFiles(KilledAtAStep& steps) : FileSystemWrapper(rocksdb::FileSystem::Default()), steps_(steps) {}
  const char* Name() const override { return "StepwiseFiles"; }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override {
    steps_.reach("make a file");
    rocksdb::IOStatus made = target()->NewWritableFile(name, options, file, context);
    if (made.ok()) *file = std::make_unique<StepwiseFile>(std::move(*file), steps_);
    return made;
  }
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* context) override {
    steps_.reach("link a file");
    return target()->LinkFile(from, to, options, context);
  }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override {
    steps_.reach("rename a file");
    return target()->RenameFile(from, to, options, context);
  }
  rocksdb::IOStatus DeleteFile(const std::string& name, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override {
    steps_.reach("delete a file");
    return target()->DeleteFile(name, options, context);
  }

 private:
  KilledAtAStep& steps_;
};

class StepwiseWriter final : public DurableWriter {
 public:
  StepwiseWriter(KilledAtAStep& steps, Written written)
      : steps_(steps), writer_(make_thread_writer([&steps, written = std::move(written)](int error) {
          steps.reach("answer a write of the log");
          written(error);
        })) {}
  void write(int file, std::span<const char> bytes, std::uint64_t offset) override {
    steps_.reach(offset == 0 ? "begin a segment" : "write to the log");
    writer_->write(file, bytes, offset);
  }
  void wait() override { writer_->wait(); }

 private:
  KilledAtAStep& steps_;
  const std::unique_ptr<DurableWriter> writer_;
};

class KilledWhileSealing : public JournalStoreTest {
 protected:
  // Such small segments may have to be sealed first.
  void claim_and_complete(std::uint64_t number) {
    while (!claim(number)) {
      ASSERT_EQ(fatal_calls_, 0);
      std::this_thread::yield();
    }
    ASSERT_TRUE(complete(number, body_of(number)));
  }
};

std::string note_beside(const std::string& path) { return path + ".step"; }

TEST_F(KilledWhileSealing, DISABLED_OtherProcessIsKilledAtAStep) {
  path_ = OtherProcess::given_path();
  KilledAtAStep steps(std::strtoull(std::getenv(kKillAt), nullptr, 10), note_beside(path_));
  env_ = rocksdb::NewCompositeEnv(std::make_shared<StepwiseFiles>(steps));
  JournalStoreOptions with = options(env_.get());
  with.segment_bytes = kSmallSegmentBytes;
  with.make_writer = [&](DurableWriter::Written written) {
    return std::make_unique<StepwiseWriter>(steps, std::move(written));
  };
  open(std::move(with));
  steps.begin();
  for (std::uint64_t number = 0; number < kKeys; ++number) {
    claim_and_complete(number);
    if (HasFatalFailure()) break;
    OtherProcess::report(number);
  }
  store_.reset();
}

TEST_F(KilledWhileSealing, KillNineAtAnyStepOfSealingAndReuseLosesNothing) {
  // One step in so many.
  const std::uint64_t stride = std::getenv("ONCEKEY_SLOW_TESTS") != nullptr ? 1 : 23;
  JournalStoreOptions with = options();
  with.segment_bytes = kSmallSegmentBytes;
  std::set<std::string> killed;
  for (std::uint64_t step = 1;; step += stride) {
    std::filesystem::remove_all(path_);
    std::filesystem::remove(path_ + ".witness");
    std::filesystem::remove(note_beside(path_));
    ::setenv(kKillAt, std::to_string(step).c_str(), 1);
    std::uint64_t acknowledged = 0; // so many
    {
      OtherProcess other("DISABLED_OtherProcessIsKilledAtAStep", path_, "KilledWhileSealing");
      while (const std::optional<std::uint64_t> number = other.next_number()) acknowledged = *number + 1;
    }
    const std::string name = content_of(note_beside(path_));
    SCOPED_TRACE("killed at step " + std::to_string(step) + ": " + name);
    if (name.empty()) {
      ASSERT_EQ(acknowledged, kKeys) << "it ended by itself, but not well";
      break;
    }
    killed.insert(name);
    open(with);
    // What goes on is sealed as well.
    for (std::uint64_t number = 1000; number < 1010; ++number) {
      claim_and_complete(number);
      if (HasFatalFailure()) return;
    }
    store_.reset();
    open(with);
    for (std::uint64_t number = 0; number < 1010; number = number == kKeys ? 1000 : number + 1) {
      const std::optional<Found> found = find(number);
      const bool complete = found && found->record->response;
      const bool was_answered = number < acknowledged || number >= 1000;
      ASSERT_TRUE(complete || !was_answered) << number;
      ASSERT_TRUE(!found || was_answered || number == acknowledged) << number << " was never begun";
      ASSERT_TRUE(!complete || found->record->response->body == body_of(number)) << number;
    }
    store_.reset();
  }
  EXPECT_FALSE(killed.empty());
  if (stride > 1) return;
  for (const char* name : {"make a file", "sync a file", "close a file", "link a file", "delete a file",
                           "begin a segment", "write to the log", "answer a write of the log"}) {
    EXPECT_TRUE(killed.contains(name)) << name;
  }
}

} // namespace
} // namespace oncekey::journal_tests
