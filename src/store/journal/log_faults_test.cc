// A small log on a disk that fails: every write cut off at every sector, crashes at every step of sealing and using a
// segment again, and flipped bits. A history is recorded once; every state that a crash could have left is made of what
// was recorded, read back, and compared with what was answered.
#include "store/journal/segmented_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

namespace oncekey::log_faults {
namespace {

constexpr std::uint64_t kSalt = 99;
constexpr std::size_t kSegmentBytes = 6 * kBlockBytes;
constexpr std::size_t kSegments = 3;
const Family kNow{FamilyKind::records, {20, 7}};
const Family kLater{FamilyKind::records, {20, 8}};

using Content = std::map<std::pair<Family, std::string>, std::string>;
using Image = std::map<std::uint32_t, std::string>; // the segments, by their numbers

struct ColdState {
  Content content;
  LogEnd end;
};

// Keeps what it takes, and every state it was in. May be told to wait before it takes anything.
class HeldColdStore final : public ColdStore {
 public:
  explicit HeldColdStore(ColdState state = {}) : states_{std::move(state)} {}

  Status take(const YoungTable& changes, const LogEnd& sealed) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_; });
    ColdState next = states_.back();
    for (const auto* entries : {&changes.left(), &changes.entries()}) {
      for (const YoungTable::Entry& entry : *entries) {
        const std::pair key(entry.family, std::string(changes.key_of(entry)));
        next.content.erase(key);
        if (!entry.erased) next.content[key] = changes.value_of(entry);
      }
    }
    next.end = sealed;
    states_.push_back(std::move(next));
    return ok_status();
  }
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  std::vector<ColdState> states() const {
    const std::lock_guard lock(mutex_);
    return states_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::vector<ColdState> states_; // one after each take
};

struct RecordedWrite {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::string bytes;
  std::size_t sealed = 0; // uses of segments, when it was made
  std::size_t sectors() const { return bytes.size() / kSectorBytes; }
};

// Whether a sector of a write reaches the disk.
using Reaches = std::function<bool(std::size_t sector)>;
const Reaches kAll = [](std::size_t) { return true; };
Reaches only_before(std::size_t end) {
  return [end](std::size_t sector) { return sector < end; };
}

void apply(Image& image, const RecordedWrite& write, const Reaches& reaches) {
  for (std::size_t sector = 0; sector < write.sectors(); ++sector) {
    if (!reaches(sector)) continue;
    image.at(write.segment)
        .replace(write.offset + sector * kSectorBytes, kSectorBytes, write.bytes, sector * kSectorBytes, kSectorBytes);
  }
}

// A folder with segments, and a log on it. Writes are made by wait_until_durable, on the thread of the test.
class LogOnDisk {
 public:
  LogOnDisk() {
    // In memory where there is such a place: the files are made thousands of times.
    const std::filesystem::path memory = "/dev/shm";
    std::error_code error;
    const bool usable = std::filesystem::is_directory(memory, error) && ::access(memory.c_str(), W_OK) == 0;
    std::string pattern =
        ((usable ? memory : std::filesystem::temp_directory_path()) / "oncekey-faults-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LogOnDisk() {
    close();
    std::filesystem::remove_all(folder_);
  }

  void set_image(const Image& image) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::filesystem::remove(entry);
    for (const auto& [number, bytes] : image) {
      std::ofstream(path_of(number), std::ios::binary).write(bytes.data(), std::ssize(bytes));
    }
  }
  Image image() const {
    Image image;
    for (const std::uint32_t number : files_->numbers()) {
      std::ifstream file(path_of(number), std::ios::binary);
      image[number] = {std::istreambuf_iterator<char>(file), {}};
    }
    return image;
  }

  Status open(ColdState cold) {
    close();
    cold_ = std::make_unique<HeldColdStore>(std::move(cold));
    Result<std::unique_ptr<SegmentFiles>> files = SegmentFiles::open(folder_, kSegmentBytes);
    if (!files) return std::move(files).fault();
    files_ = *std::move(files);
    SegmentedLogOptions options;
    options.salt = kSalt;
    options.sealed = cold_->states().back().end;
    options.segments_max = kSegments;
    options.make_writer = [this](DurableWriter::Written written) {
      return std::make_unique<Writer>(*this, std::move(written));
    };
    options.on_fatal = [this](const std::string&) { ++fatal_; };
    Result<std::unique_ptr<SegmentedLog>> log = SegmentedLog::open(*files_, *cold_, std::move(options));
    if (!log) return std::move(log).fault();
    log_ = *std::move(log);
    return ok_status();
  }
  void close() {
    if (cold_) cold_->hold(false);
    log_.reset();
    files_.reset();
  }

  // What a reader finds: the cold store's content with what is young over it.
  Content content() {
    const auto lock = log_->lock();
    Content found = cold_->states().back().content;
    const SegmentedLog::Young young = log_->young(kNow.kind, "");
    for (const SegmentedLog::Young::Entry& entry : young.entries) {
      std::erase_if(found, [&](const auto& known) { return known.first.second == entry.key; });
      if (!entry.erased) found[{entry.family, std::string(entry.key)}] = entry.value;
    }
    return found;
  }

  // Not durable before wait_until_durable.
  bool put(const Family& family, const std::string& key, const std::string& value, const Family* left = nullptr) {
    const auto lock = log_->lock();
    const std::size_t entries = left != nullptr ? 2 : 1;
    const std::size_t bytes = entries * key.size() + value.size();
    if (!log_->fits(entries, bytes)) return false;
    log_->begin_step(entries, bytes);
    log_->put(family, key, value);
    if (left != nullptr) log_->erase(*left, key);
    end_step();
    return true;
  }
  bool erase(const Family& family, const std::string& key) {
    const auto lock = log_->lock();
    if (!log_->fits(1, key.size())) return false;
    log_->begin_step(1, key.size());
    log_->erase(family, key);
    end_step();
    return true;
  }

  std::string folder_;
  std::unique_ptr<HeldColdStore> cold_;
  std::unique_ptr<SegmentFiles> files_;
  std::unique_ptr<SegmentedLog> log_;
  std::vector<RecordedWrite> writes_; // that were begun
  std::uint64_t acknowledged_ = 0;    // sequence of the newest batch that was said to be durable
  int fatal_ = 0;
  // This write fails with EIO, after these of its sectors have reached the disk.
  std::size_t fails_at_ = SIZE_MAX;
  Reaches reaches_ = kAll;

 private:
  class Writer final : public DurableWriter {
   public:
    Writer(LogOnDisk& disk, Written written) : disk_(disk), written_(std::move(written)) {}
    void write(int file, std::span<const char> bytes, std::uint64_t offset) override {
      file_ = file;
      under_way_ = {0, offset, std::string(bytes.data(), bytes.size()), 0};
    }
    void wait() override { written_(disk_.make(file_, std::move(under_way_))); }

   private:
    LogOnDisk& disk_;
    const Written written_;
    int file_ = -1;
    RecordedWrite under_way_;
  };

  std::string path_of(std::uint32_t number) const { return fmt::format("{}/{:06}.segment", folder_, number); }

  int make(int file, RecordedWrite write) {
    const std::vector<std::uint32_t> numbers = files_->numbers();
    write.segment = *std::find_if(numbers.begin(), numbers.end(),
                                  [&](std::uint32_t number) { return files_->descriptor(number) == file; });
    write.sealed = cold_->states().size() - 1;
    const bool fails = writes_.size() == fails_at_;
    std::fstream segment(path_of(write.segment), std::ios::in | std::ios::out | std::ios::binary);
    for (std::size_t sector = 0; sector < write.sectors(); ++sector) {
      if (fails && !reaches_(sector)) continue;
      segment.seekp(static_cast<std::streamoff>(write.offset + sector * kSectorBytes));
      segment.write(write.bytes.data() + sector * kSectorBytes, kSectorBytes);
    }
    writes_.push_back(std::move(write));
    return fails ? EIO : 0;
  }
  void end_step() {
    log_->when_durable(log_->newest(), [this, newest = log_->newest()] { acknowledged_ = newest; });
    log_->flush();
  }
};

// Some keys that are put, changed, moved and erased, in batches of one to three blocks, over segments that are used
// several times. Sometimes sealing waits until there is no room.
class History {
 public:
  void play(LogOnDisk& disk) {
    Image blank;
    for (std::uint32_t number = 0; number < kSegments; ++number) blank[number] = std::string(kSegmentBytes, '\0');
    disk.set_image(blank);
    ASSERT_TRUE(disk.open({}));
    disk.log_->start_sealing();
    constexpr std::size_t kSizes[] = {30, 900, 5000, 2000, 9000};
    for (int i = 0; i < 44; ++i) {
      disk.cold_->hold(i < 28);
      const std::string key = "key " + std::to_string(i % 5);
      const std::string value(kSizes[i % std::size(kSizes)], static_cast<char>('a' + i % 26));
      const Family* const in = family_of(key);
      const bool erases = i % 7 == 6 && in != nullptr;
      const bool moves = i % 5 == 4 && in == &kNow;
      const auto change = [&] {
        if (erases) return disk.erase(*in, key);
        return moves ? disk.put(kLater, key, value, in) : disk.put(in != nullptr ? *in : kNow, key, value);
      };
      while (!change()) {
        if (disk.fatal_ > 0) return;
        settle(disk);
        disk.cold_->hold(false);
        std::this_thread::yield();
      }
      if (in != nullptr && (erases || moves)) model_.erase({*in, key});
      if (!erases) model_[{moves ? kLater : in != nullptr ? *in : kNow, key}] = value;
      {
        const auto lock = disk.log_->lock();
        after_[disk.log_->newest()] = model_;
      }
      if (i % 3 != 0) settle(disk);
      if (disk.fatal_ > 0) return;
    }
    settle(disk);
    disk.cold_->hold(false);
    settle(disk);
  }

  // Once batch `sequence` is durable.
  const Content& after(std::uint64_t sequence) const {
    static const Content nothing;
    return sequence == 0 ? nothing : after_.at(sequence);
  }

 private:
  const Family* family_of(const std::string& key) const {
    for (const Family* family : {&kNow, &kLater}) {
      if (model_.contains({*family, key})) return family;
    }
    return nullptr;
  }
  // All is durable, and sealed unless that waits.
  static void settle(LogOnDisk& disk) { disk.log_->wait_until_durable(); }

  Content model_;
  std::map<std::uint64_t, Content> after_;
};

class LogFaultsTest : public ::testing::Test {
 protected:
  // Records a history.
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "thousands of recoveries, each by one thread: the other sanitizers look at them";
#endif
    history_.play(disk_);
    writes_ = disk_.writes_;
    ASSERT_EQ(disk_.acknowledged_, writes_.size());
    for (std::size_t at = 0; at < writes_.size(); ++at) {
      if (writes_[at].offset == 0) uses_.push_back(at);
    }
    while (disk_.log_->sealings() + 1 < uses_.size()) std::this_thread::yield();
    EXPECT_EQ(disk_.content(), history_.after(writes_.size()));
    for (std::size_t at = 0; at < writes_.size(); ++at) {
      EXPECT_GE(writes_[at].sealed, sealed_during(at).first) << "write " << at << " was over what was not sealed";
    }
    cold_ = disk_.cold_->states();
    ASSERT_EQ(cold_.size(), uses_.size());
    ASSERT_GE(uses_.size(), 2 * kSegments + 1) << "each segment is used three times";
    disk_.close();
  }

  Image image_before(std::size_t write) const {
    Image image;
    for (std::uint32_t number = 0; number < kSegments; ++number) image[number] = std::string(kSegmentBytes, '\0');
    for (std::size_t at = 0; at < write; ++at) apply(image, writes_[at], kAll);
    return image;
  }

  // Which states the cold store can be in while write `at` is under way: `sealed` uses of segments were taken.
  // Every use that was overwritten was taken before; only uses whose writes are all durable can be.
  std::pair<std::size_t, std::size_t> sealed_during(std::size_t at) const {
    std::size_t least = 0, most = 0;
    for (std::size_t use = 0; use < uses_.size() && uses_[use] <= at; ++use) {
      most = use; // all before it
      for (std::size_t before = 0; before < use; ++before) {
        if (writes_[uses_[before]].segment == writes_[uses_[use]].segment) least = std::max(least, before + 1);
      }
    }
    return {least, most};
  }
  template <class Visit>
  void for_each_crash(Visit visit) {
    for (std::size_t at = 0; at < writes_.size(); ++at) {
      const Image before = image_before(at);
      const auto [least, most] = sealed_during(at);
      for (std::size_t sealed = least; sealed <= most; ++sealed) {
        SCOPED_TRACE(fmt::format("write {} of {}, {} uses sealed", at, writes_.size(), sealed));
        visit(at, before, cold_[sealed]);
        if (HasFatalFailure()) return;
      }
    }
  }

  // What is read back, or why not.
  Result<Content> recovered(const Image& image, const ColdState& cold) {
    disk_.set_image(image);
    if (const Status opened = disk_.open(cold); !opened) return opened.fault();
    return disk_.content();
  }
  // The log that was read back takes more, also over the next start.
  void goes_on(Content expected, const ColdState& cold) {
    ASSERT_TRUE(disk_.put(kNow, "afterwards", "value"));
    disk_.log_->wait_until_durable();
    expected[{kNow, "afterwards"}] = "value";
    const Status opened = disk_.open(cold);
    ASSERT_TRUE(opened) << opened.fault().message;
    ASSERT_EQ(disk_.content(), expected);
  }

  // Prefixes, all but one sector, and one sector alone.
  static std::vector<Reaches> tears(const RecordedWrite& write) {
    std::vector<Reaches> tears;
    for (std::size_t at = 0; at < write.sectors(); ++at) {
      tears.push_back(only_before(at));
      tears.emplace_back([at](std::size_t sector) { return sector != at; });
      tears.emplace_back([at](std::size_t sector) { return sector == at; });
    }
    return tears;
  }

  // What takes long is done for one case in so many.
  const std::size_t every_ = std::getenv("ONCEKEY_SLOW_TESTS") != nullptr ? 1 : 4;
  LogOnDisk disk_;
  History history_;
  std::vector<RecordedWrite> writes_;
  std::vector<std::size_t> uses_; // the first write of each use of a segment
  std::vector<ColdState> cold_;   // after so many uses were sealed
};

TEST_F(LogFaultsTest, ACrashAfterAnyWriteLosesNothing) {
  for_each_crash([&](std::size_t at, Image image, const ColdState& cold) {
    apply(image, writes_[at], kAll);
    const Result<Content> content = recovered(image, cold);
    ASSERT_TRUE(content) << content.fault().message;
    ASSERT_EQ(*content, history_.after(at + 1));
    goes_on(*content, cold);
  });
}

TEST_F(LogFaultsTest, AWriteCutOffAnywhereIsNotThereAndHarmsNothing) {
  for_each_crash([&](std::size_t at, const Image& before, const ColdState& cold) {
    std::size_t number = at;
    for (const Reaches& reaches : tears(writes_[at])) {
      Image image = before;
      apply(image, writes_[at], reaches);
      const Result<Content> content = recovered(image, cold);
      ASSERT_TRUE(content) << content.fault().message;
      ASSERT_EQ(*content, history_.after(at));
      if (number++ % every_ == 0) goes_on(*content, cold);
      if (HasFatalFailure()) return;
    }
  });
}

TEST_F(LogFaultsTest, ASecondCrashDuringTheFirstWriteAfterACrashHarmsNothing) {
  const std::string value(4000, 'x');
  for_each_crash([&](std::size_t at, const Image& before, const ColdState& cold) {
    const std::size_t half = writes_[at].sectors() / 2;
    for (const Reaches& reaches : {only_before(half), Reaches([=](std::size_t sector) { return sector >= half; })}) {
      Image cut = before;
      apply(cut, writes_[at], reaches);
      ASSERT_TRUE(recovered(cut, cold));
      disk_.fails_at_ = disk_.writes_.size();
      disk_.reaches_ = only_before(0);
      ASSERT_TRUE(disk_.put(kNow, "afterwards", value));
      disk_.log_->wait_until_durable();
      disk_.fails_at_ = SIZE_MAX;
      const RecordedWrite second = disk_.writes_.back();
      const Image first_crash = disk_.image();
      for (std::size_t sectors = 0; sectors <= second.sectors(); sectors += every_) {
        Image image = first_crash;
        apply(image, second, only_before(sectors));
        Content expected = history_.after(at);
        if (sectors == second.sectors()) expected[{kNow, "afterwards"}] = value;
        const Result<Content> content = recovered(image, cold);
        ASSERT_TRUE(content) << content.fault().message;
        ASSERT_EQ(*content, expected);
      }
    }
  });
}

// On the log as it runs: nothing is answered after a failure, and the next start finds what was.
TEST_F(LogFaultsTest, AfterAWriteThatFailsNothingIsAnswered) {
  for (std::size_t at = 0; at < writes_.size(); ++at) {
    for (std::size_t sectors = 0; sectors <= writes_[at].sectors(); sectors += 4) {
      SCOPED_TRACE(fmt::format("write {} fails after {} sectors", at, sectors));
      LogOnDisk disk;
      History history;
      disk.fails_at_ = at;
      disk.reaches_ = only_before(sectors);
      history.play(disk);
      EXPECT_EQ(disk.fatal_, 1);
      ASSERT_EQ(disk.acknowledged_, at);
      ASSERT_EQ(disk.writes_.size(), at + 1) << "it was not tried again, nor anything after it";
      disk.close(); // ends the sealing under way
      const Status opened = disk.open(disk.cold_->states().back());
      ASSERT_TRUE(opened) << opened.fault().message;
      ASSERT_EQ(disk.content(), history.after(sectors == disk.writes_[at].sectors() ? at + 1 : at));
    }
  }
}

TEST_F(LogFaultsTest, AFlippedBitIsFoundOrHarmless) {
  const std::size_t step = every_ == 1 ? 1 : 127;
  // With as many live segments as there are, and with few.
  for (const std::size_t at : {writes_.size() / 2, writes_.size() - 1}) {
    const auto [least, most] = sealed_during(at);
    for (const std::size_t sealed : {least, most}) {
      Image image = image_before(at);
      apply(image, writes_[at], kAll);
      int found = 0;
      for (auto& [number, bytes] : image) {
        for (std::size_t byte = 0; byte < bytes.size(); byte += step) {
          const char right = bytes[byte];
          bytes[byte] = static_cast<char>(right ^ (1 << byte % 8));
          const Result<Content> content = recovered(image, cold_[sealed]);
          bytes[byte] = right;
          if (content) {
            ASSERT_EQ(*content, history_.after(at + 1)) << "segment " << number << ", byte " << byte;
          } else {
            ASSERT_EQ(content.fault().kind, FaultKind::corrupt) << content.fault().message;
            ++found;
          }
        }
      }
      EXPECT_GT(found, 0);
    }
  }
}

TEST_F(LogFaultsTest, ASegmentThatIsTooShortIsDamage) {
  Image image = image_before(writes_.size());
  image.at(1).resize(kSegmentBytes - kSectorBytes);
  const Result<Content> content = recovered(image, cold_.back());
  ASSERT_FALSE(content);
  EXPECT_EQ(content.fault().kind, FaultKind::corrupt);
}

} // namespace
} // namespace oncekey::log_faults
