#include "store/journal/segmented_log.h"

#include "net/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>

namespace oncekey {
namespace {

constexpr std::size_t kTestSegmentBytes = 16 * kBlockBytes;
const Family kFamily{FamilyKind::records, {20, 7}};
const Family kLaterFamily{FamilyKind::records, {20, 8}};

using Content = std::map<std::pair<Family, std::string>, std::string>;

// Keeps what it takes in memory, which stands for a disk.
class FakeColdStore final : public ColdStore {
 public:
  Status take(const YoungTable& changes, const LogEnd& sealed) override {
    const std::lock_guard lock(mutex);
    if (failing) return unavailable("the disk is full");
    for (const auto* entries : {&changes.left(), &changes.entries()}) {
      for (const YoungTable::Entry& entry : *entries) {
        const std::pair key(entry.family, std::string(changes.key_of(entry)));
        content.erase(key);
        if (!entry.erased) content[key] = changes.value_of(entry);
      }
    }
    end = sealed;
    ++takes;
    return ok_status();
  }

  std::mutex mutex;
  bool failing = false;
  int takes = 0;
  Content content;
  LogEnd end;
};

class SegmentedLogTest : public ::testing::Test {
 protected:
  SegmentedLogTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-journal-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SegmentedLogTest() override {
    journal_.reset();
    std::filesystem::remove_all(folder_);
  }

  void open() {
    files_.reset();
    auto files = SegmentFiles::open(folder_, kTestSegmentBytes);
    ASSERT_TRUE(files) << files.fault().message;
    files_ = *std::move(files);
    SegmentedLogOptions options;
    options.salt = 42;
    options.sealed = cold_.end;
    options.segments_max = 4;
    options.on_fatal = [](const std::string& reason) { ADD_FAILURE() << reason; };
    auto journal = SegmentedLog::open(*files_, cold_, std::move(options));
    ASSERT_TRUE(journal) << journal.fault().message;
    journal_ = *std::move(journal);
    journal_->start_sealing();
  }
  void reopen() {
    journal_.reset();
    open();
  }

  // Puts and waits until it is durable; false if there is no room.
  bool put(const Family& family, const std::string& key, const std::string& value) {
    return change(key.size() + value.size(), [&] { journal_->put(family, key, value); });
  }
  bool erase(const Family& family, const std::string& key) {
    return change(key.size(), [&] { journal_->erase(family, key); });
  }
  template <class Change>
  bool change(std::size_t bytes, Change make) {
    std::promise<void> durable;
    {
      const auto lock = journal_->lock();
      if (!journal_->fits(1, bytes)) return false;
      journal_->begin_step(1, bytes);
      make();
      journal_->when_durable(journal_->newest(), [&] { durable.set_value(); });
      journal_->flush();
    }
    durable.get_future().wait();
    return true;
  }
  template <class Until>
  void wait_until(Until until) {
    while (!until()) std::this_thread::yield();
  }

  // What a reader finds: the cold store's content with what is young over it.
  Content content() {
    const auto lock = journal_->lock();
    const std::lock_guard cold(cold_.mutex);
    Content found = cold_.content;
    const SegmentedLog::Young young = journal_->young(kFamily.kind, "");
    for (const SegmentedLog::Young::Entry& entry : young.entries) {
      std::erase_if(found, [&](const auto& known) { return known.first.second == entry.key; });
      if (!entry.erased) found[{entry.family, std::string(entry.key)}] = entry.value;
    }
    return found;
  }

  std::string folder_;
  FakeColdStore cold_;
  std::unique_ptr<SegmentFiles> files_;
  std::unique_ptr<SegmentedLog> journal_;
};

TEST_F(SegmentedLogTest, WhatIsDurableIsThereAfterTheNextOpen) {
  open();
  EXPECT_TRUE(put(kFamily, "a", "1"));
  EXPECT_TRUE(put(kFamily, "b", "1"));
  EXPECT_TRUE(put(kFamily, "a", "2"));
  EXPECT_TRUE(erase(kFamily, "b"));
  const Content expected{{{kFamily, "a"}, "2"}};
  EXPECT_EQ(content(), expected);
  reopen();
  EXPECT_EQ(content(), expected);
  reopen();
  EXPECT_EQ(content(), expected);
}

TEST_F(SegmentedLogTest, AKeyThatMovesIsInOneFamily) {
  open();
  EXPECT_TRUE(put(kFamily, "a", "1"));
  EXPECT_TRUE(put(kLaterFamily, "a", "2"));
  EXPECT_TRUE(erase(kFamily, "a"));
  const Content expected{{{kLaterFamily, "a"}, "2"}};
  EXPECT_EQ(content(), expected);
  {
    const auto lock = journal_->lock();
    const auto found = journal_->find(FamilyKind::records, "a");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->family, kLaterFamily);
    EXPECT_EQ(found->value, "2");
    EXPECT_EQ(found->sequence, 2u);
    EXPECT_FALSE(journal_->find(FamilyKind::jobs, "a"));
  }
  reopen();
  EXPECT_EQ(content(), expected);
}

TEST_F(SegmentedLogTest, FullSegmentsGoToTheColdStoreAndAreUsedAgain) {
  open();
  Content expected;
  for (int i = 0; i < 300; ++i) {
    const std::string key = "key " + std::to_string(i % 37);
    const std::string value(1000 + static_cast<std::size_t>(i), static_cast<char>('a' + i % 26));
    while (!put(kFamily, key, value)) std::this_thread::yield();
    expected[{kFamily, key}] = value;
  }
  EXPECT_EQ(content(), expected);
  EXPECT_LE(files_->numbers().size(), 4u);
  EXPECT_GT(cold_.takes, 10);
  reopen();
  EXPECT_EQ(content(), expected);
}

TEST_F(SegmentedLogTest, WithoutAColdStoreTheLogFillsUpAndGoesOnLater) {
  open();
  cold_.failing = true;
  int put_in = 0;
  const auto put_one = [&] { return put(kFamily, "key " + std::to_string(put_in), std::string(3000, 'x')); };
  const auto has_room = [&] {
    const auto lock = journal_->lock();
    return journal_->room() > kTestSegmentBytes / 2;
  };
  while (has_room()) put_in += put_one() ? 1 : 0;
  const int put_with_room = put_in;
  while (put_one()) ++put_in;
  EXPECT_GT(put_in, put_with_room) << "nothing was left for the ends of what was begun";
  EXPECT_EQ(content().size(), static_cast<std::size_t>(put_in));
  reopen();
  EXPECT_EQ(content().size(), static_cast<std::size_t>(put_in));
  {
    const std::lock_guard lock(cold_.mutex);
    cold_.failing = false;
  }
  while (!put(kFamily, "one more", "x")) std::this_thread::yield();
  EXPECT_EQ(content().size(), static_cast<std::size_t>(put_in) + 1);
}

TEST_F(SegmentedLogTest, ALoopWritesByIoUringAndAThreadGoesOn) {
  Loop loop;
  open();
  EXPECT_TRUE(put(kFamily, "by the thread", "1"));
  bool has_ring = false;
  journal_->write_by([&](DurableWriter::Written written) {
    auto ring = make_ring_writer(loop, written);
    has_ring = ring != nullptr;
    return has_ring ? std::move(ring) : make_thread_writer(std::move(written));
  });
  if (!has_ring) GTEST_SKIP() << "the kernel does not allow io_uring here";
  std::thread runs([&] { loop.run(); });
  for (int i = 0; i < 100; ++i) {
    while (!put(kFamily, "by the loop " + std::to_string(i), std::string(2000, 'x'))) std::this_thread::yield();
  }
  loop.stop();
  runs.join();
  {
    // Nothing runs the loop any more: what is put now goes with the next writer.
    const auto lock = journal_->lock();
    ASSERT_TRUE(journal_->fits(1, 100));
    journal_->begin_step(1, 100);
    journal_->put(kFamily, "between", "1");
    journal_->flush();
  }
  journal_->write_by(make_thread_writer);
  EXPECT_TRUE(put(kFamily, "by the thread again", "1"));
  EXPECT_EQ(content().size(), 103u);
  reopen();
  EXPECT_EQ(content().size(), 103u);
}

// Writes when it is told, and has turns when it is told.
class WriterByHand final : public DurableWriter {
 public:
  explicit WriterByHand(Written written) : written_(std::move(written)) {}
  void write(int /*file*/, std::span<const char> /*bytes*/, std::uint64_t /*offset*/) override {
    writing = true;
    ++writes;
  }
  void wait() override {
    writing = false;
    written_(0);
  }
  bool after_turn(std::function<void()> work) override {
    next_ = std::move(work);
    return true;
  }
  // Nothing to do ends it too.
  void turns_until_it_writes() {
    while (!writing && next_) std::exchange(next_, nullptr)();
  }

  bool writing = false;
  int writes = 0;

 private:
  const Written written_;
  std::function<void()> next_;
};

TEST_F(SegmentedLogTest, AWriteWaitsForWhatTheWriteBeforeItLetsGoOn) {
  open();
  WriterByHand* writer = nullptr;
  journal_->write_by([&](DurableWriter::Written written) {
    auto by_hand = std::make_unique<WriterByHand>(std::move(written));
    writer = by_hand.get();
    return by_hand;
  });
  int durable = 0;
  const auto begin = [&](const std::string& key) {
    const auto lock = journal_->lock();
    journal_->begin_step(1, 100);
    journal_->put(kFamily, key, "1");
    journal_->when_durable(journal_->newest(), [&durable] { ++durable; });
    journal_->flush();
  };
  begin("first");
  writer->turns_until_it_writes();
  begin("during it");
  writer->wait();
  EXPECT_EQ(durable, 1);
  EXPECT_FALSE(writer->writing) << "the next write waits";
  begin("after it");
  writer->turns_until_it_writes();
  writer->wait();
  EXPECT_EQ(durable, 3);
  EXPECT_EQ(writer->writes, 2);
  journal_->write_by(make_thread_writer);
}

TEST_F(SegmentedLogTest, WhatIsLargerThanASegmentDoesNotFit) {
  open();
  EXPECT_FALSE(put(kFamily, "a", std::string(kTestSegmentBytes, 'x')));
  EXPECT_TRUE(put(kFamily, "a", std::string(kTestSegmentBytes * 9 / 10, 'x')));
}

TEST_F(SegmentedLogTest, ADamagedLogIsNotOpened) {
  open();
  EXPECT_TRUE(put(kFamily, "a", "1"));
  journal_.reset();
  files_.reset();
  {
    std::fstream file(folder_ + "/000000.segment", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('!');
  }
  auto files = SegmentFiles::open(folder_, kTestSegmentBytes);
  ASSERT_TRUE(files);
  SegmentedLogOptions options;
  options.salt = 42;
  const auto opened = SegmentedLog::open(**files, cold_, std::move(options));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.fault().kind, FaultKind::corrupt);
}

// As a write that a killed process gave to io_uring does: it keeps the file open until it has ended.
TEST_F(SegmentedLogTest, ASegmentThatIsStillWrittenIsWaitedFor) {
  open();
  journal_.reset();
  files_.reset();
  const std::string path = folder_ + "/000000.segment";
  const int writing = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(writing, LOCK_EX), 0);
  struct stat file {};
  ASSERT_EQ(::fstat(writing, &file), 0);
  std::atomic<bool> opened = false;
  std::thread opener([&] {
    open();
    opened = true;
  });
  // The kernel lists those that wait, with the number of the file.
  const auto waits = [ending = ":" + std::to_string(file.st_ino) + " 0 EOF"] {
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
      if (line.find("->") != std::string::npos && line.find(ending) != std::string::npos) return true;
    }
    return false;
  };
  wait_until([&] { return waits() || opened; });
  EXPECT_FALSE(opened);
  ::close(writing);
  opener.join();
  EXPECT_TRUE(opened);
}

} // namespace
} // namespace oncekey
