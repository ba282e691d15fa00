// Backups of an embedded store: of one moment, whatever is being written, and what a store made of one does.
#include "store/journal/backup.h"

#include "store/common/store_note.h"
#include "store/journal/examine.h"
#include "store/journal/store_on_disk.h"

namespace oncekey::journal_tests {
namespace {

BackupNote a_note() {
  BackupNote note{"00ff", 7, Time{Millis{1'700'000'000'123}}, 2};
  note.files = {{"meta", 59, 0x1234}, {"log/000000.segment", 1 << 20, 0xffffffffffffffff}};
  return note;
}

TEST(BackupNoteTest, IsReadAsItWasWritten) {
  const std::string text = encode_backup_note(a_note());
  const Result<BackupNote> read = decode_backup_note(text, "backup");
  ASSERT_TRUE(read) << read.fault().message;
  EXPECT_EQ(encode_backup_note(*read), text);
  EXPECT_EQ(read->made, a_note().made);
}

TEST(BackupNoteTest, EveryShorterOrChangedOneIsRefused) {
  const std::string text = encode_backup_note(a_note());
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_FALSE(decode_backup_note(text.substr(0, length), "backup")) << length;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] ^= 1;
    EXPECT_FALSE(decode_backup_note(changed, "backup")) << at;
  }
}

TEST(BackupNoteTest, NamesThatLeadElsewhereAreRefused) {
  for (const std::string name : {"../secret", "/etc/passwd", "log/../../x", "bodies/a/b", "other/x", ".hidden"}) {
    BackupNote note = a_note();
    note.files.push_back({name, 1, 1});
    EXPECT_FALSE(decode_backup_note(encode_backup_note(note), "backup")) << name;
  }
}

TEST(BackupNoteTest, ALaterFormatIsNamed) {
  std::string text = encode_backup_note(a_note());
  text.replace(text.find(" 1\n"), 3, " 2\n");
  EXPECT_EQ(decode_backup_note(text, "backup").fault().kind, FaultKind::newer_format);
}

class BackupTest : public JournalStoreTest {
 protected:
  BackupMade back_up() {
    Result<BackupMade> made = store_->back_up(copy_, [](std::uint64_t, std::uint64_t) { return true; });
    EXPECT_TRUE(made) << made.fault().message;
    return made ? *made : BackupMade{};
  }
  // The store of the test is the backup from now on.
  void open_the_backup() {
    store_.reset();
    path_ = copy_;
    open();
  }
  StoreReport examine(const std::string& folder) {
    const Result<StoreReport> report = examine_journal(folder, {});
    EXPECT_TRUE(report) << report.fault().message;
    return report ? *report : StoreReport{};
  }

  const std::string copy_ = root_ + "/copy";
};

TEST_F(BackupTest, HasWhatIsDurableAndNothingElse) {
  FaultyLog& log = open_on_a_faulty_log();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, "kept"));
  log.hold();
  store_->claim(claim_of(2), [](const Result<ClaimAnswer>&) {});
  log.wait_for_a_write();
  const BackupMade made = back_up();
  EXPECT_EQ(made.in_progress, 1U); // it is visible already, and may become durable
  EXPECT_EQ(examine(copy_).details.newest_sequence, made.sequence);
  log.let_all_through();
  open_the_backup();
  EXPECT_TRUE(replays(1));
  EXPECT_FALSE(find(2));
}

TEST_F(BackupTest, HasYoungAndSortedRecordsAndLargeBodies) {
  open();
  const std::string large(2 * kLogBodyBytesMax, 'x');
  for (std::uint64_t number = 1; number <= 40; ++number) {
    if (number == 21) seal();
    ASSERT_TRUE(claim(number));
    ASSERT_TRUE(complete(number, number % 20 == 5 ? large : "small"));
  }
  const BackupMade made = back_up();
  EXPECT_GT(made.bytes, 2 * large.size());
  const StoreReport report = examine(copy_);
  EXPECT_TRUE(report.sound()) << report.problems.front().what;
  EXPECT_EQ(report.completed, 40U);
  ASSERT_TRUE(report.backup);
  EXPECT_EQ(report.backup->sequence, made.sequence);
  open_the_backup();
  for (std::uint64_t number = 1; number <= 40; ++number) EXPECT_TRUE(replays(number)) << number;
  EXPECT_EQ(find(25)->record->response->body, large);
}

TEST_F(BackupTest, OfAStoreThatFillsSegmentsMeanwhileIsWhole) {
  open();
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> answered = 0;
  std::thread writer([&] {
    // Refused while the log is full, until a segment is sealed.
    for (std::uint64_t number = 1; !stop; ++number) {
      while (!stop && !claim(number)) std::this_thread::yield();
      while (!stop && !complete(number, std::string(8000, 'x'))) std::this_thread::yield();
      if (!stop) answered = number;
    }
  });
  for (int round = 0; round < 5; ++round) {
    while (answered < 100U * static_cast<std::uint64_t>(round + 1)) std::this_thread::yield();
    const std::uint64_t before = answered;
    const std::string copy = root_ + "/copy" + std::to_string(round);
    const Result<BackupMade> made = store_->back_up(copy, {});
    EXPECT_TRUE(made) << made.fault().message;
    const StoreReport report = examine(copy);
    EXPECT_TRUE(report.sound()) << report.problems.front().what;
    EXPECT_GE(report.completed, before);
  }
  stop = true;
  writer.join();
}

TEST_F(BackupTest, RefusesClaimsUntilTheLossIsAccepted) {
  open();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, "kept"));
  const BackupMade made = back_up();
  ASSERT_TRUE(claim(2)); // executed after it
  open_the_backup();
  EXPECT_TRUE(replays(1));
  EXPECT_THAT(refusal(2), HasSubstr("it is a backup made at"));
  const Result<LossAcceptance> accepted = accept_lost_memory_journal(copy_);
  ASSERT_TRUE(accepted);
  while (!refusal(3).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(refusal(3), "");
  store_.reset();
  open();
  EXPECT_EQ(refusal(4), "");
  EXPECT_FALSE(std::filesystem::exists(copy_ + "/backup"));
}

TEST_F(BackupTest, OfARestoredStoreKnowsNoMoreThanTheFirst) {
  open();
  ASSERT_TRUE(claim(1));
  const BackupMade first = back_up();
  open_the_backup();
  const Result<BackupMade> second = store_->back_up(root_ + "/second", {});
  ASSERT_TRUE(second) << second.fault().message;
  EXPECT_EQ(second->made, first.made);
}

TEST_F(BackupTest, IsComparedWithItsListUntilAStoreIsOpenedOnIt) {
  open();
  ASSERT_TRUE(claim(1));
  back_up();
  const std::filesystem::path segment = *std::filesystem::directory_iterator(copy_ + "/log");
  const auto overwrite_behind_the_log = [&](char with) {
    std::fstream file(segment, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put(with);
  };
  overwrite_behind_the_log('!');
  const StoreReport report = examine(copy_);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].what, HasSubstr("does not have the content that was backed up"));
  overwrite_behind_the_log('\0');
  EXPECT_TRUE(examine(copy_).sound());

  open_the_backup();
  ASSERT_FALSE(refusal(2).empty());
  store_.reset();
  const StoreReport opened = examine(copy_);
  EXPECT_TRUE(opened.sound()) << opened.problems.front().what;
  EXPECT_TRUE(opened.backup);
}

TEST_F(BackupTest, WhatARestoreLeavesForTheAuditLogIsNotInTheListOfTheNewStore) {
  open();
  ASSERT_TRUE(claim(1));
  store_.reset();
  const std::string name(name_of(StoreNote::audit_pending));
  std::ofstream(path_ + "/" + name) << "before\n";
  ASSERT_TRUE(back_up_journal(path_, copy_, {}));
  const std::string back = root_ + "/back";
  ASSERT_TRUE(restore_journal(copy_, back, {}));
  EXPECT_EQ(content_of(back + "/" + name), "before\n");
  std::ofstream(back + "/" + name) << "before\nrestored\n";
  EXPECT_TRUE(examine(back).sound());
  std::ofstream(copy_ + "/" + name) << "damaged\n";
  EXPECT_FALSE(examine(copy_).sound());
}

TEST_F(BackupTest, ThatIsGivenUpLeavesNothing) {
  open();
  ASSERT_TRUE(claim(1));
  EXPECT_FALSE(store_->back_up(copy_, [](std::uint64_t, std::uint64_t) { return false; }));
  EXPECT_FALSE(std::filesystem::exists(copy_));
  EXPECT_FALSE(std::filesystem::exists(copy_ + ".partial"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/snapshot"));
  back_up();
}

// At that piece of the copy.
constexpr const char* kKilledAt = "ONCEKEY_TEST_KILLED_AT";

TEST_F(BackupTest, DISABLED_IsKilledWhileItIsMade) {
  path_ = OtherProcess::given_path();
  open();
  std::uint64_t left = std::strtoull(std::getenv(kKilledAt), nullptr, 10);
  OtherProcess::report(1);
  (void)store_->back_up(path_ + "-copy", [&](std::uint64_t, std::uint64_t) {
    if (left-- == 0) ::kill(::getpid(), SIGKILL);
    return true;
  });
  OtherProcess::report(2);
}

TEST_F(BackupTest, ThatIsKilledDoesNotLookWholeAndLeavesTheStoreSound) {
  open();
  for (std::uint64_t number = 1; number <= 5; ++number) {
    ASSERT_TRUE(claim(number));
    ASSERT_TRUE(complete(number, std::string(2 * kLogBodyBytesMax, 'x')));
  }
  store_.reset();
  const std::string copy = path_ + "-copy";
  for (std::uint64_t piece = 0;; piece += 3) {
    ::setenv(kKilledAt, std::to_string(piece).c_str(), 1);
    OtherProcess other("DISABLED_IsKilledWhileItIsMade", path_, "BackupTest");
    ASSERT_EQ(other.next_number(), 1U);
    const bool whole = other.next_number() == 2U;
    other.kill();
    EXPECT_EQ(std::filesystem::exists(copy + "/backup"), whole);
    EXPECT_EQ(std::filesystem::exists(copy), whole);
    EXPECT_FALSE(std::filesystem::exists(copy + ".partial/backup"));
    EXPECT_TRUE(examine(path_).sound());
    if (whole) break;
    EXPECT_THAT(check_new_folder(copy).fault().message, HasSubstr("cut off"));
    std::filesystem::remove_all(copy + ".partial");
  }
  EXPECT_TRUE(examine(copy).sound());
}

TEST_F(BackupTest, IsNotMadeOverAnythingNorOfAStoreInUse) {
  open();
  std::filesystem::create_directory(copy_);
  EXPECT_THAT(store_->back_up(copy_, {}).fault().message, HasSubstr("exists already"));
  std::filesystem::rename(copy_, copy_ + ".partial");
  EXPECT_THAT(store_->back_up(copy_, {}).fault().message, HasSubstr("cut off"));
  EXPECT_THAT(restore_journal(path_, root_ + "/back", {}).fault().message, HasSubstr("is not a whole backup"));
}

} // namespace
} // namespace oncekey::journal_tests
