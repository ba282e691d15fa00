#include "audit/audit_log.h"

#include "audit/read_audit.h"
#include "audit/verify.h"
#include "base/timestamp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

namespace oncekey {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A log in a folder of its own, and a store that is a member.
class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() : folder_(fs::path(testing::TempDir()) / ("oncekey_audit_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = (folder_ / "audit.log").native();
    heads_.keep("one", {}, "2026-01-01T00:00:00.000Z");
  }
  ~AuditLogTest() override { fs::remove_all(folder_); }

  std::unique_ptr<AuditLog> open(std::uint64_t rotate_bytes = 0,
                                 std::chrono::milliseconds keep_files = std::chrono::milliseconds(0)) {
    const std::lock_guard lock(heads_mutex_);
    const auto kept = heads_.of.find("one");
    auto log = AuditLog::open({.path = path_,
                               .gateway = "eu-1",
                               .chain = "one",
                               .key = heads_.key,
                               .known = kept == heads_.of.end() ? std::nullopt : std::optional(kept->second.head),
                               .rotate_bytes = rotate_bytes,
                               .keep_files = keep_files,
                               .keep =
                                   [this](const ChainHead& head) {
                                     const std::lock_guard keeping(heads_mutex_);
                                     heads_.keep("one", head, "2026-01-02T03:04:05.678Z");
                                     return ok_status();
                                   },
                               .log = log_});
    EXPECT_TRUE(log.ok()) << log.fault().message;
    return std::move(log).value();
  }
  void write(std::initializer_list<const char*> keys) {
    const auto log = open();
    for (const char* const key : keys) log->write({.event = "replayed", .key = key});
  }
  std::vector<std::string> rotated() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path() != path_) names.push_back(entry.path().native());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  AuditVerdict verify(std::uint64_t from = 1) {
    const auto files = audit_files_of(path_);
    EXPECT_TRUE(files.ok());
    // A log that is open keeps its heads from a thread of its own.
    std::unique_lock lock(heads_mutex_);
    const ChainHeads heads = heads_;
    lock.unlock();
    auto verdict = verify_audit(
        *files, heads, [](std::uint64_t, std::uint64_t) {}, from);
    EXPECT_TRUE(verdict.ok());
    return std::move(verdict).value();
  }
  std::string content() const {
    std::ifstream in(path_);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void replace(const std::string& text) const { std::ofstream(path_, std::ios::trunc) << text; }
  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    std::istringstream in(content());
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  void replace(const std::vector<std::string>& lines) const {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    replace(text);
  }

  const fs::path folder_;
  std::string path_;
  std::mutex heads_mutex_; // over the next
  ChainHeads heads_ = new_chain_heads();
  Log log_{LogLevel::error};
};

TEST_F(AuditLogTest, WhatIsNoAuditLogIsFoundWithoutOpeningIt) {
  EXPECT_TRUE(AuditLog::check(path_)) << "it is made at start";
  EXPECT_FALSE(fs::exists(path_)) << "and not by the check";
  std::ofstream(path_) << "bread, milk\n";
  const Status checked = AuditLog::check(path_);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.fault().message, path_ + ": is not an audit log; move it away, or give another path");
  fs::remove(path_);
  const auto log = open();
  EXPECT_TRUE(AuditLog::check(path_)) << "while a process writes it";
  EXPECT_FALSE(AuditLog::check(folder_.native()));
}

TEST_F(AuditLogTest, LinesOfSeveralRunsAreOneChain) {
  write({"a", "b"});
  write({"c"});
  const AuditVerdict verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty());
  EXPECT_THAT(verdict.notices, IsEmpty());
  EXPECT_EQ(verdict.lines, 7u); // opened, a, b, closed, opened, c, closed
  EXPECT_EQ(verdict.newer, 0u);
  EXPECT_EQ(verdict.last, heads_.of.at("one").head);
  struct stat entry {};
  ASSERT_EQ(::stat(path_.c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
}

TEST_F(AuditLogTest, ARemovedLineIsMissed) {
  write({"a", "b", "c"});
  std::vector<std::string> all = lines();
  all.erase(all.begin() + 2);
  replace(all);
  EXPECT_THAT(verify().broken, ElementsAre(path_ + ":3: line 3 is missing"));
}

TEST_F(AuditLogTest, AChangedLineIsFound) {
  write({"a", "b", "c"});
  std::vector<std::string> all = lines();
  all[2].replace(all[2].find("\"b\""), 3, "\"x\"");
  replace(all);
  EXPECT_THAT(verify().broken, ElementsAre(path_ + ":4: line 4 does not follow from line 3: one of them was changed"));
}

TEST_F(AuditLogTest, SwappedLinesAreFound) {
  write({"a", "b", "c"});
  std::vector<std::string> all = lines();
  std::swap(all[1], all[2]);
  replace(all);
  EXPECT_THAT(verify().broken, testing::Not(IsEmpty()));
}

TEST_F(AuditLogTest, ARemovedTailIsMissedByTheHeadInTheStore) {
  write({"a", "b", "c"});
  std::vector<std::string> all = lines();
  all.resize(3);
  replace(all);
  EXPECT_THAT(verify().broken,
              ElementsAre(path_ + ":4: lines 4 to 5 are missing at the end: the store has seen line 5 at "
                                  "2026-01-02T03:04:05.678Z"));
}

TEST_F(AuditLogTest, LinesMadeWithoutTheKeyOfTheStoreAreFound) {
  write({"a"});
  const ChainHash other("another key");
  std::vector<std::string> all = lines();
  const std::string forged = chained_line({3, other.of(all.back())}, R"("event":"action","who":"eve")");
  all.push_back(forged);
  replace(all);
  EXPECT_THAT(verify().broken, ElementsAre(HasSubstr("line 4 does not follow from line 3")));
}

TEST_F(AuditLogTest, TheGatewaySaysAtItsStartThatLinesAreMissing) {
  write({"a", "b"});
  std::vector<std::string> all = lines();
  all.resize(2);
  replace(all);
  write({"c"}); // the head moves on over the gap, which stays in the log
  EXPECT_THAT(verify().broken, ElementsAre(HasSubstr("lines 3 to 4 are missing"),
                                           HasSubstr("the store has seen line 4 and the log ends with line 2")));
}

TEST_F(AuditLogTest, ALogThatIsGoneIsMissed) {
  write({"a", "b"});
  fs::remove(path_);
  write({"c"});
  EXPECT_THAT(verify().broken, ElementsAre(HasSubstr("the store has seen line 4 and the log ends with line 0")));
}

TEST_F(AuditLogTest, ACrashBeforeTheHeadWasKeptIsNoFault) {
  write({"a"});
  const ChainHeads before = heads_;
  const std::string kept = content();
  write({"b", "c"});
  heads_ = before;
  // The process died with its lines on disk, without "closed".
  std::vector<std::string> all = lines();
  all.pop_back();
  replace(all);
  AuditVerdict verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty());
  EXPECT_EQ(verdict.newer, 3u);
  write({"d"});
  verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty());
  EXPECT_THAT(verdict.notices, ElementsAre(HasSubstr("started again after a crash")));
}

TEST_F(AuditLogTest, ALineTornByACrashStaysAndIsToldFromTampering) {
  write({"a"});
  replace(content() + "{\"n\":4,\"pr");
  AuditVerdict verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty()) << "the last line may be on its way";
  EXPECT_THAT(verdict.notices, ElementsAre(HasSubstr(":4: the last line is not whole")));
  write({"b"});
  verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty());
  EXPECT_THAT(verdict.notices, testing::Contains(HasSubstr("11 bytes were torn")));
  // Without the word of the gateway it is tampering.
  std::vector<std::string> all = lines();
  all.insert(all.begin() + 1, "garbage");
  replace(all);
  EXPECT_THAT(verify().broken, ElementsAre(path_ + ":2: is not a line of an audit log, and no line behind it says that "
                                                   "it was torn"));
}

TEST_F(AuditLogTest, AForgedLineAtTheEndIsNotATornOne) {
  write({"a"});
  const std::string before = content();
  for (const std::string forged :
       {R"({"n":4,"prev":"00","time":"2026-01-02T03:04:05.678Z","event":"action"})", R"({"n":4)", "garbage", ""}) {
    for (const std::string behind : {"", "{\"n\":4,"}) {
      replace(before + forged + "\n" + behind);
      EXPECT_THAT(verify().broken, ElementsAre(path_ + ":4: is not a line of an audit log, and no line behind it says "
                                                       "that it was torn"))
          << forged << behind;
    }
  }
  // A start must not pass it off as torn.
  replace(before + "garbage\n");
  write({"b"});
  EXPECT_THAT(verify().broken, ElementsAre(HasSubstr("behind line 3 stands one that is not a line of an audit log")));
}

TEST_F(AuditLogTest, AWholeLineWithoutItsNewlineIsKept) {
  write({"a"});
  std::string text = content();
  text.pop_back();
  replace(text);
  write({"b"});
  const AuditVerdict verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty());
  EXPECT_EQ(verdict.lines, 6u);
}

TEST_F(AuditLogTest, FilesThatWereRotatedArePartOfTheChain) {
  {
    const auto log = open(600);
    for (int i = 0; i < 20; ++i) {
      log->write({.event = "replayed", .key = "k" + std::to_string(i)});
      log->flush();
    }
    ASSERT_EQ(::rename(path_.c_str(), (path_ + ".1").c_str()), 0); // as logrotate does
    log->reopen();
    log->write({.event = "replayed", .key = "last"});
    log->reopen(); // nothing was moved
  }
  const auto files = audit_files_of(path_);
  ASSERT_GT(files->files.size(), 5u);
  EXPECT_EQ(files->files.front().path, path_ + ".000000000001");
  EXPECT_THAT(verify().broken, IsEmpty());
  fs::remove(files->files.front().path);
  EXPECT_THAT(verify().broken, ElementsAre(HasSubstr("files with older lines are not here")));
  const std::uint64_t begins = files->files[1].first;
  EXPECT_THAT(verify(begins).broken, IsEmpty());
  EXPECT_THAT(verify(begins).notices, ElementsAre(HasSubstr("files with older lines are not here")));
  fs::remove(files->files[3].path);
  EXPECT_THAT(verify(begins).broken, ElementsAre(HasSubstr("missing")));
}

TEST_F(AuditLogTest, AStopThatFillsAFileIsNoCrash) {
  open(1).reset();
  open(1).reset();
  EXPECT_THAT(verify().notices, IsEmpty());
}

TEST_F(AuditLogTest, ALogThatWasMovedWhileTheGatewayStoodStillGoesOn) {
  write({"a"});
  ASSERT_EQ(::rename(path_.c_str(), (path_ + ".1").c_str()), 0);
  write({"b"});
  EXPECT_THAT(verify().broken, IsEmpty());
}

TEST_F(AuditLogTest, OneProcessWritesALog) {
  const auto first = open();
  const auto second = AuditLog::open({.path = path_, .gateway = "b", .chain = "two", .key = "k", .log = log_});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.fault().message, HasSubstr("another process writes it"));
}

TEST_F(AuditLogTest, AnotherFileIsNotTakenForALog) {
  replace("some notes\n");
  const auto opened = AuditLog::open({.path = path_, .gateway = "b", .chain = "two", .key = "k", .log = log_});
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.fault().message, HasSubstr("is not an audit log"));
  EXPECT_EQ(content(), "some notes\n");
}

TEST_F(AuditLogTest, LinesThatDoNotFitOnTheDiskAreCountedAndSaid) {
  const auto log = open();
  log->write({.event = "replayed", .key = "fits"});
  log->flush();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{static_cast<rlim_t>(fs::file_size(path_)) + 50, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  log->write({.event = "replayed", .key = "torn"});
  log->write({.event = "replayed", .key = "lost"});
  log->flush();
  log->write({.event = "replayed", .key = "lost too"});
  log->flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(log->counts().lost, 3u);
  log->write({.event = "replayed", .key = "room again"});
  log->flush();
  const AuditVerdict verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty());
  EXPECT_THAT(verdict.notices, ElementsAre(HasSubstr("51 bytes were torn"), HasSubstr("3 lines could not be written")))
      << content();
}

TEST_F(AuditLogTest, ADiskThatIsFullTwiceLeavesNothingThatLooksForged) {
  const auto log = open();
  log->flush();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // Room for a part of a line; then for its newline and a part of the next one; then for a line without its newline.
  std::vector<AuditVerdict> verdicts;
  const std::uint64_t size = fs::file_size(path_);
  for (const std::uint64_t room : {50u, 80u}) {
    const rlimit full{static_cast<rlim_t>(size + room), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    log->write({.event = "replayed", .key = "torn"});
    log->flush();
    verdicts.push_back(verify());
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  log->write({.event = "replayed", .key = "room again"});
  log->flush();
  verdicts.push_back(verify());
  // As long as the next one without its newline.
  log->write({.event = "replayed", .key = "as long"});
  log->flush();
  const rlimit full{static_cast<rlim_t>(fs::file_size(path_) + lines().back().size()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  log->write({.event = "replayed", .key = "as long"});
  log->flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  log->write({.event = "replayed", .key = "room again"});
  log->flush();
  verdicts.push_back(verify());
  std::signal(SIGXFSZ, handler);
  for (const AuditVerdict& verdict : verdicts) EXPECT_THAT(verdict.broken, IsEmpty()) << content();
  EXPECT_THAT(verdicts[2].notices, testing::Contains(HasSubstr("51 bytes were torn")));
}

TEST_F(AuditLogTest, ReadingLeavesOutALastLineWithoutItsNewline) {
  write({"a"});
  std::string text = content();
  text.pop_back();
  replace(text);
  const auto files = audit_files_of(path_);
  const auto page = read_audit(*files, {});
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->lines.size(), 2u);
  EXPECT_THAT(page->cut_off, ElementsAre(path_));
  replace(text + "\n");
  EXPECT_THAT(read_audit(*audit_files_of(path_), {})->cut_off, IsEmpty());
}

TEST_F(AuditLogTest, ReadingTakesARecordOrTheBeginningOfItsId) {
  {
    const auto log = open();
    log->write({.event = "claimed", .record = "aabb", .key = "k"});
    log->write({.event = "action", .record = "aabb", .action = "release"});
    log->write({.event = "claimed", .record = "aacc", .key = "\"record\":\"aabb"});
  }
  const auto files = audit_files_of(path_);
  EXPECT_EQ(read_audit(*files, {.records = {"aabb"}})->lines.size(), 2u);
  EXPECT_EQ(read_audit(*files, {.records = {"aa"}})->lines.size(), 3u);
  EXPECT_EQ(read_audit(*files, {.keys = {"k"}})->lines.size(), 1u);
  EXPECT_EQ(read_audit(*files, {.records = {"aabb"}, .keys = {"k"}})->lines.size(), 2u);
}

TEST_F(AuditLogTest, ReadingGivesTheNewestFirstPageByPage) {
  {
    const auto log = open(20'000);
    for (int i = 0; i < 1000; ++i)
      log->write({.event = "replayed", .record = i % 2 == 0 ? "aa" : "bb", .status = 1 + i});
  }
  const auto files = audit_files_of(path_);
  ASSERT_TRUE(files.ok());
  std::vector<std::string> seen;
  AuditQuery query{.limit = 7, .records = {"aa"}, .look_bytes = 5000};
  do {
    const auto page = read_audit(*files, query);
    ASSERT_TRUE(page.ok());
    for (const std::string& line : page->lines) seen.push_back(audit_member(line, "status"));
    query.before = page->next;
  } while (query.before != 0);
  ASSERT_EQ(seen.size(), 500u);
  for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], std::to_string(999 - 2 * i));
}

TEST_F(AuditLogTest, ReadingGoesByTimeAndKey) {
  write({"a", "quote\"d"});
  const auto files = audit_files_of(path_);
  EXPECT_EQ(read_audit(*files, {.keys = {"quote\"d"}})->lines.size(), 1u);
  EXPECT_EQ(read_audit(*files, {.keys = {"quote"}})->lines.size(), 0u);
  EXPECT_EQ(read_audit(*files, {.since = "2001-01-01T00:00:00.000Z"})->lines.size(), 4u);
  EXPECT_EQ(read_audit(*files, {.since = "2101-01-01T00:00:00.000Z"})->lines.size(), 0u);
  EXPECT_EQ(read_audit(*files, {.until = "2001-01-01T00:00:00.000Z"})->lines.size(), 0u);
}

TEST_F(AuditLogTest, ReadingSaysHowFarItLooked) {
  write({"a", "b"});
  const auto files = audit_files_of(path_);
  const auto none = read_audit(*files, {.keys = {"c"}});
  EXPECT_EQ(none->looked, 4u);
  EXPECT_EQ(none->back_to, audit_member(content().substr(0, content().find('\n')), "time"));
  const auto one = read_audit(*files, {.limit = 1});
  EXPECT_EQ(one->looked, 1u);
  EXPECT_EQ(one->back_to, audit_member(one->lines.front(), "time"));
  EXPECT_EQ(read_audit(*files, {.until = "2001-01-01T00:00:00.000Z"})->back_to, "");
}

TEST_F(AuditLogTest, AMomentInALongLogIsFoundWithoutReadingWhatIsNewer) {
  constexpr int kLines = 100'000; // one a second, in files of an hour or more
  const auto at = [](int second) {
    return timestamp(std::chrono::sys_days(std::chrono::year(2026) / 1 / 2) + std::chrono::seconds(second));
  };
  std::ofstream out;
  for (int i = 0; i < kLines; ++i) {
    if (i % 30'000 == 0) {
      out.close();
      out.open(i == 90'000 ? path_ : rotated_name(path_, static_cast<std::uint64_t>(i) + 1));
    }
    out << chained_line({static_cast<std::uint64_t>(i), std::string(64, '0')}, fmt::format("\"time\":\"{}\"", at(i)))
        << "\n";
  }
  out.close();
  const auto files = audit_files_of(path_);
  ASSERT_EQ(files->files.size(), 4u);
  for (const int second : {1, 29'999, 30'000, 30'001, 45'678, 99'999}) {
    const auto page = read_audit(*files, {.limit = 1, .until = at(second), .look_bytes = UINT64_MAX});
    ASSERT_EQ(page->lines.size(), 1u) << second;
    EXPECT_EQ(audit_member(page->lines.front(), "time"), at(second - 1));
    EXPECT_LE(page->looked, 3601u) << "an hour's, for a clock that was set";
  }
}

// A log of some files.
class OldFilesTest : public AuditLogTest {
 protected:
  OldFilesTest() {
    for (int i = 0; i < 4; ++i) {
      const auto log = open(1);
      log->write({.event = "replayed", .key = "a"});
      log->flush();
    }
    EXPECT_GT(rotated().size(), 3u);
    // Until every line is older than a millisecond.
    const auto written = std::chrono::system_clock::now();
    while (std::chrono::system_clock::now() < written + std::chrono::milliseconds(3)) std::this_thread::yield();
  }
};

TEST_F(OldFilesTest, AllAreKeptWithoutTheSetting) {
  const std::size_t before = rotated().size();
  open().reset();
  EXPECT_EQ(rotated().size(), before);
  open(0, std::chrono::hours(1)).reset();
  EXPECT_EQ(rotated().size(), before);
  EXPECT_THAT(verify().notices, IsEmpty());
}

TEST_F(OldFilesTest, OldOnesAreDeletedAndALineOfTheChainSaysSo) {
  open(0, std::chrono::milliseconds(1)).reset();
  // The file that was written is itself old, and was rotated before: it is deleted by the next look.
  ASSERT_EQ(rotated().size(), 1u);
  const AuditVerdict verdict = verify();
  EXPECT_THAT(verdict.broken, IsEmpty());
  const std::uint64_t first = verdict.first.n;
  EXPECT_GT(first, 1u);
  EXPECT_THAT(verdict.notices, ElementsAre(HasSubstr(fmt::format(
                                   "begins with line {}: the gateway deleted lines up to {} at", first, first - 1))));
  EXPECT_THAT(verdict.notices.front(), HasSubstr("audit_log_keep = \"1ms\""));
}

TEST_F(OldFilesTest, OnesThatAnotherDeletesAreMissed) {
  open(0, std::chrono::milliseconds(1)).reset();
  fs::remove(rotated().front());
  const AuditVerdict verdict = verify();
  EXPECT_THAT(verdict.broken, ElementsAre(testing::AllOf(HasSubstr("no line says that the gateway deleted them"),
                                                         HasSubstr(fmt::format("--from {}", verdict.first.n)))));
  // An operator who has archived them says so.
  EXPECT_THAT(verify(verdict.first.n).broken, IsEmpty());
  EXPECT_THAT(verify(verdict.first.n - 1).broken, testing::SizeIs(1));
}

TEST_F(OldFilesTest, OnesOfALogRotationAreLeftToIt) {
  fs::rename(rotated().front(), path_ + ".1.old");
  const std::size_t before = rotated().size();
  open(0, std::chrono::milliseconds(1)).reset();
  EXPECT_EQ(rotated().size(), before + 1); // and the one that was written until now
}

TEST_F(AuditLogTest, WhatIsPendingIsWrittenBeforeItIsTakenAway) {
  std::vector<std::string> left{"accept_loss"};
  int asked = 0;
  {
    auto log = AuditLog::open({.path = path_,
                               .gateway = "b",
                               .chain = "two",
                               .key = "k",
                               .take_pending =
                                   [&](const AuditLog::Options::Put& put) {
                                     ++asked;
                                     for (const std::string& action : left)
                                       EXPECT_TRUE(put({.event = "action", .action = action}));
                                     EXPECT_THAT(content(), HasSubstr("\"action\":\"accept_loss\""));
                                     left.clear();
                                     return ok_status();
                                   },
                               .log = log_});
    ASSERT_TRUE(log.ok());
  }
  EXPECT_GE(asked, 1);
  ASSERT_EQ(lines().size(), 3u); // opened, the action, closed
  EXPECT_THAT(lines().back(), HasSubstr("closed"));
}

TEST_F(AuditLogTest, WhatIsPendingIsNotTakenAwayWhileTheDiskIsFull) {
  open().reset();
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::promise<bool> put_on_full_disk;
  std::promise<bool> put_again;
  int asked = 0;
  {
    auto log = AuditLog::open(
        {.path = path_,
         .gateway = "b",
         .chain = "two",
         .key = "k",
         .take_pending =
             [&](const AuditLog::Options::Put& put) {
               if (++asked > 2) return ok_status();
               const bool full = asked == 1;
               // "opened" is in the file: not one byte more, and then as much as there is.
               const rlimit limit{full ? static_cast<rlim_t>(fs::file_size(path_)) : before.rlim_cur, before.rlim_max};
               ::setrlimit(RLIMIT_FSIZE, &limit);
               const Status done = put({.event = "action", .action = "accept_loss"});
               (full ? put_on_full_disk : put_again).set_value(done.ok());
               return done;
             },
         .look_every = std::chrono::milliseconds(1),
         .log = log_});
    ASSERT_TRUE(log.ok());
    EXPECT_FALSE(put_on_full_disk.get_future().get());
    EXPECT_TRUE(put_again.get_future().get());
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_THAT(content(), HasSubstr("\"action\":\"accept_loss\""));
}

TEST_F(AuditLogTest, AHeadThatCannotBeKeptIsTriedAgain) {
  int tries = 0;
  {
    auto log = AuditLog::open(
        {.path = path_,
         .gateway = "b",
         .chain = "two",
         .key = "k",
         .keep = [&](const ChainHead&) { return ++tries == 1 ? Status(unavailable("no store")) : ok_status(); },
         .keep_every = std::chrono::milliseconds(1),
         .log = log_});
    ASSERT_TRUE(log.ok());
  }
  EXPECT_GE(tries, 2);
}

} // namespace
} // namespace oncekey
