#include "client/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    std::string pattern = testing::TempDir() + "oncekey-journal-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path = folder_ + "/keys";
  }
  ~JournalTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Journal> open() {
    auto journal = Journal::open(path);
    EXPECT_TRUE(journal.ok()) << (journal.ok() ? "" : journal.fault().message);
    return *std::move(journal);
  }
  std::string content() const {
    std::ostringstream all;
    all << std::ifstream(path, std::ios::binary).rdbuf();
    return all.str();
  }
  void rewrite(const std::string& text) const { std::ofstream(path, std::ios::binary | std::ios::trunc) << text; }
  std::string key_of(Journal& journal, const std::string& operation) {
    const auto entry = journal.find(operation);
    EXPECT_TRUE(entry.ok());
    return entry->has_value() ? (*entry)->key : "none";
  }

  std::string path;

 private:
  std::string folder_;
};

JournalEntry entry_with(const std::string& key, Millis begun = Millis(1234)) {
  return {"f1", key, Time(begun), "POST http://h/x"};
}
// An end with 201 at 2000, that stands until 5000.
JournalEnd ended() { return {Time(Millis(2000)), Time(Millis(5000)), 201}; }
constexpr Time kNow{Millis(2000)};

TEST_F(JournalTest, AnOpenKeyIsFoundAgain) {
  EXPECT_FALSE(open()->begin("op", entry_with("k1"))->found);
  const auto journal = open();
  const auto again = journal->begin("op", entry_with("k2"));
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->found);
  EXPECT_EQ(again->entry.key, "k1");
  EXPECT_EQ(again->entry.fingerprint, "f1");
  EXPECT_EQ(again->entry.begun, Time(Millis(1234)));
  EXPECT_EQ(again->entry.summary, "POST http://h/x");
}

TEST_F(JournalTest, AForgottenKeyIsGone) {
  const auto journal = open();
  ASSERT_TRUE(journal->begin("op", entry_with("k1")).ok());
  EXPECT_TRUE(*journal->forget("op", "k1", kNow));
  EXPECT_EQ(key_of(*journal, "op"), "none");
  EXPECT_EQ(key_of(*open(), "op"), "none");
  EXPECT_FALSE(journal->begin("op", entry_with("k2"))->found);
}

TEST_F(JournalTest, AnEndedOperationIsFoundUntilItIsOver) {
  ASSERT_TRUE(open()->begin("op", entry_with("k1")).ok());
  EXPECT_TRUE(*open()->end("op", "k1", ended()));
  const auto again = open()->begin("op", entry_with("k2", Millis(4999)));
  EXPECT_TRUE(again->found);
  EXPECT_EQ(again->entry.key, "k1");
  ASSERT_TRUE(again->entry.ended.has_value());
  EXPECT_EQ(again->entry.ended->at, Time(Millis(2000)));
  EXPECT_EQ(again->entry.ended->until, Time(Millis(5000)));
  EXPECT_EQ(again->entry.ended->status, 201);
  const auto later = open()->begin("op", entry_with("k3", Millis(5000)));
  EXPECT_FALSE(later->found);
  EXPECT_EQ(key_of(*open(), "op"), "k3");
}

TEST_F(JournalTest, AnEndedOperationBeginsAnewWhenAsked) {
  const auto journal = open();
  ASSERT_TRUE(journal->begin("op", entry_with("k1")).ok());
  EXPECT_TRUE(journal->begin("op", entry_with("k2"), IfEnded::begin_anew)->found); // open: its answer is not known
  EXPECT_TRUE(*journal->end("op", "k1", ended()));
  EXPECT_FALSE(journal->begin("op", entry_with("k2"), IfEnded::begin_anew)->found);
  const auto found = open()->find("op");
  EXPECT_EQ((*found)->key, "k2");
  EXPECT_FALSE((*found)->ended.has_value());
}

TEST_F(JournalTest, ARunCountsAlsoAfterTheFileWasCompacted) {
  const auto journal = open();
  EXPECT_EQ(journal->begin("op", entry_with("k1"))->entry.run, 1u);
  for (int i = 0; i < 1100; ++i) ASSERT_TRUE(journal->begin("op", entry_with("k2")).ok());
  EXPECT_LT(content().size(), 50'000u);
  const auto last = open()->begin("op", entry_with("k2"));
  EXPECT_EQ(last->entry.key, "k1");
  EXPECT_EQ(last->entry.run, 1102u);
  EXPECT_FALSE(*journal->end("op", "k1", ended(), 1101u));
  EXPECT_FALSE(*journal->forget("op", "k1", kNow, 1u));
  EXPECT_TRUE(*journal->end("op", "k1", ended(), 1102u));
}

TEST_F(JournalTest, AnotherKeysEndChangesNothing) {
  const auto journal = open();
  ASSERT_TRUE(journal->begin("op", entry_with("k1")).ok());
  EXPECT_FALSE(*journal->forget("op", "k0", kNow));
  EXPECT_FALSE(*journal->forget("other", "k1", kNow));
  EXPECT_FALSE(*journal->end("op", "k0", ended()));
  EXPECT_EQ(key_of(*journal, "op"), "k1");
  EXPECT_FALSE((*journal->find("op"))->ended.has_value());
}

TEST_F(JournalTest, IsReadableByItsOwnerAlone) {
  open();
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(JournalTest, OneThatOthersCouldReadIsNarrowed) {
  rewrite("");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_TRUE(open()->begin("op", entry_with("k1")).ok());
  struct stat now {};
  ASSERT_EQ(::stat(path.c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 0777u, 0600u);
}

TEST_F(JournalTest, ALineThatACrashCutShortIsCutOff) {
  {
    const auto journal = open();
    ASSERT_TRUE(journal->begin("a", entry_with("k1")).ok());
    ASSERT_TRUE(journal->begin("b", entry_with("k2")).ok());
  }
  const std::string whole = content();
  const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t size = last; size < whole.size(); ++size) {
    rewrite(whole.substr(0, size));
    const auto journal = open();
    EXPECT_EQ(key_of(*journal, "a"), "k1") << size;
    EXPECT_EQ(key_of(*journal, "b"), "none") << size;
    ASSERT_TRUE(journal->begin("c", entry_with("k3")).ok());
    const auto again = open();
    EXPECT_EQ(key_of(*again, "a"), "k1") << size;
    EXPECT_EQ(key_of(*again, "c"), "k3") << size;
  }
}

TEST_F(JournalTest, ACrashWhileTheFileIsMadeLeavesAnEmptyJournal) {
  open()->begin("a", entry_with("k1")).ok();
  const std::string whole = content();
  for (std::size_t size = 0; size <= whole.find('\n'); ++size) {
    rewrite(whole.substr(0, size));
    const auto journal = open();
    EXPECT_FALSE(journal->begin("a", entry_with("k2"))->found) << size;
    EXPECT_EQ(key_of(*open(), "a"), "k2");
  }
}

TEST_F(JournalTest, ATailOfZerosIsCutOff) {
  open()->begin("a", entry_with("k1")).ok();
  rewrite(content() + std::string(100, '\0'));
  const auto journal = open();
  ASSERT_TRUE(journal->begin("b", entry_with("k2")).ok());
  EXPECT_EQ(key_of(*open(), "a"), "k1");
  EXPECT_EQ(key_of(*open(), "b"), "k2");
}

TEST_F(JournalTest, DamageBeforeGoodLinesIsAFault) {
  {
    const auto journal = open();
    ASSERT_TRUE(journal->begin("a", entry_with("k1")).ok());
    ASSERT_TRUE(journal->begin("b", entry_with("k2")).ok());
  }
  const std::string whole = content();
  const std::size_t first = whole.find('\n') + 1;
  const std::size_t second = whole.find('\n', first) + 1;
  for (std::size_t at = first; at + 1 < second; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    rewrite(damaged);
    const auto journal = Journal::open(path);
    ASSERT_FALSE(journal.ok()) << at;
    EXPECT_EQ(journal.fault().kind, FaultKind::corrupt);
  }
}

TEST_F(JournalTest, OtherFilesAreNotTouched) {
  rewrite("my notes\n");
  EXPECT_EQ(Journal::open(path).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(content(), "my notes\n");
  rewrite("oncekey journal 2\nwhatever\n");
  EXPECT_EQ(Journal::open(path).fault().kind, FaultKind::newer_format);
}

TEST_F(JournalTest, ThatCannotBeMadeIsAFaultWithItsName) {
  path += "/no/such/folder";
  const auto journal = Journal::open(path);
  ASSERT_FALSE(journal.ok());
  EXPECT_THAT(journal.fault().message, testing::HasSubstr(path));
}

TEST_F(JournalTest, TwoProcessesSeeEachOthersKeys) {
  const auto one = open();
  const auto two = open();
  ASSERT_TRUE(one->begin("op", entry_with("k1")).ok());
  EXPECT_EQ(two->begin("op", entry_with("k2"))->entry.key, "k1");
  EXPECT_TRUE(*two->forget("op", "k1", kNow));
  EXPECT_EQ(key_of(*one, "op"), "none");
}

TEST_F(JournalTest, IsCompactedWhenMostOfItIsHistory) {
  const auto one = open();
  const auto two = open();
  ASSERT_TRUE(one->begin("stays", entry_with("k0")).ok());
  for (int i = 0; i < 600; ++i) {
    ASSERT_TRUE(one->begin("op", entry_with("k")).ok());
    ASSERT_TRUE(*one->forget("op", "k", kNow));
  }
  EXPECT_LT(content().size(), 40'000u);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  // The one that had the old file open goes on with the new one.
  EXPECT_EQ(key_of(*two, "stays"), "k0");
  ASSERT_TRUE(two->begin("late", entry_with("k1")).ok());
  EXPECT_EQ(key_of(*one, "late"), "k1");
  EXPECT_EQ(key_of(*open(), "stays"), "k0");
}

// Half of the names end at 2000 and are over at 5000, the others stand for ever.
TEST_F(JournalTest, IsCompactedWithoutTheNamesThatAreOver) {
  const auto journal = open();
  JournalEnd lasting = ended();
  lasting.until = Time(Millis(1'000'000));
  for (int i = 0; i < 300; ++i) {
    const std::string name = std::to_string(i);
    ASSERT_TRUE(journal->begin("brief" + name, entry_with("k")).ok());
    ASSERT_TRUE(*journal->end("brief" + name, "k", ended()));
    if (i % 100 != 0) continue;
    ASSERT_TRUE(journal->begin("lasting" + name, entry_with("k" + name)).ok());
    ASSERT_TRUE(*journal->end("lasting" + name, "k" + name, lasting));
  }
  const std::size_t before = content().size();
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(journal->begin("op", entry_with("k", Millis(6000))).ok());
    ASSERT_TRUE(*journal->forget("op", "k", Time(Millis(6000))));
  }
  EXPECT_LT(content().size(), before / 2);
  EXPECT_EQ(key_of(*journal, "brief7"), "none");
  const auto found = open()->find("lasting200");
  EXPECT_EQ((*found)->key, "k200");
  EXPECT_EQ((*found)->ended->status, 201);
}

TEST_F(JournalTest, AFullOneBeginsNothingAndForgetsNothing) {
  const auto journal = *Journal::open(path, 2000);
  int begun = 0;
  Result<Journal::Begun> last = journal->begin("0", entry_with("k0"));
  while (last.ok() && begun < 100) {
    ASSERT_TRUE(*journal->end(std::to_string(begun), "k" + std::to_string(begun), ended()));
    ++begun;
    last = journal->begin(std::to_string(begun), entry_with("k" + std::to_string(begun)));
  }
  ASSERT_FALSE(last.ok());
  EXPECT_THAT(last.fault().message, testing::HasSubstr("is full"));
  EXPECT_EQ(key_of(*journal, "0"), "k0");
  // When the names are over, there is room again.
  EXPECT_TRUE(journal->begin("new", entry_with("k", Millis(5000))).ok());
  EXPECT_EQ(key_of(*journal, "0"), "none");
  EXPECT_LT(content().size(), 1000u);
}

TEST_F(JournalTest, ManyProcessesAgreeOnOneKeyForEachOperation) {
  constexpr int kProcesses = 4;
  constexpr int kOperations = 40;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto journal = Journal::open(path);
      std::ofstream seen(path + "." + std::to_string(p));
      for (int i = 0; journal.ok() && i < kOperations; ++i) {
        const auto begun = (*journal)->begin("op" + std::to_string(i), entry_with("p" + std::to_string(p)));
        seen << (begun.ok() ? begun->entry.key : "fault") << "\n";
      }
      seen.close();
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto journal = open();
  for (int p = 0; p < kProcesses; ++p) {
    std::ifstream seen(path + "." + std::to_string(p));
    std::string key;
    for (int i = 0; i < kOperations; ++i) {
      ASSERT_TRUE(std::getline(seen, key));
      EXPECT_EQ(key, key_of(*journal, "op" + std::to_string(i))) << p;
    }
  }
}

TEST_F(JournalTest, ManyThreadsAgreeOnOneKey) {
  const auto journal = open();
  std::vector<std::thread> threads;
  std::vector<std::string> seen(8);
  for (std::size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back(
        [&, t] { seen[t] = journal->begin("threads", entry_with("t" + std::to_string(t)))->entry.key; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& key : seen) EXPECT_EQ(key, seen[0]);
}

} // namespace
} // namespace oncekey
