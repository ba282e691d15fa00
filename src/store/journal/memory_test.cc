// What the store must not lose sight of: who may read it, its secret, its witness, and the time.
#include "store/journal/store_on_disk.h"

namespace oncekey::journal_tests {
namespace {

TEST_F(JournalStoreTest, TheFolderAndItsFilesAreTheOwnersAlone) {
  const mode_t before = ::umask(077); // as serve sets it
  open();
  ASSERT_TRUE(claim(1));
  ::umask(before);
  EXPECT_EQ(mode_of(path_), 0700u);
  EXPECT_EQ(mode_of(path_ + ".witness"), 0600u);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    EXPECT_EQ(mode_of(entry.path()), entry.is_directory() ? 0700u : 0600u) << entry.path();
  }
}

TEST_F(JournalStoreTest, WhatOthersCouldReadIsNarrowedAtTheStart) {
  open();
  store_.reset();
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
    ASSERT_EQ(::chmod(entry.path().c_str(), entry.is_directory() ? 0755 : 0644), 0);
  const mode_t before = ::umask(077);
  open();
  ::umask(before);
  EXPECT_EQ(mode_of(path_), 0700u);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    EXPECT_EQ(mode_of(entry.path()), entry.is_directory() ? 0700u : 0600u) << entry.path();
  }
}

// The secret.

TEST_F(JournalStoreTest, TheSecretIsInAFileAndNotInTheDatabase) {
  open();
  const Secret secret = store_->secret();
  store_.reset();
  const std::string raw(reinterpret_cast<const char*>(secret.data()), secret.size());
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    if (entry.path().filename() == "secret" || entry.is_directory()) continue;
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

TEST_F(JournalStoreTest, AMissingSecretIsRefusedWithWhatToDoAndNotMadeAnew) {
  open();
  store_.reset();
  std::filesystem::rename(path_ + "/secret", root_ + "/kept");
  EXPECT_THAT(open_fault().message, HasSubstr("secret is missing"));
  EXPECT_THAT(open_fault().message, HasSubstr("put the file back"));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/secret"));
  std::filesystem::rename(root_ + "/kept", path_ + "/secret");
  open();
}

TEST_F(JournalStoreTest, TheSecretOfAnotherStoreIsRefused) {
  open();
  store_.reset();
  std::ofstream(path_ + "/secret") << std::string(64, 'a') << "\n";
  EXPECT_THAT(open_fault().message, HasSubstr("secret of another store"));
  std::ofstream(path_ + "/secret") << "abc\n";
  EXPECT_THAT(open_fault().message, HasSubstr("expected 64 hexadecimal digits"));
}

TEST_F(JournalStoreTest, ASecretThatACrashLeftBeforeTheStoreWasMadeIsUsed) {
  std::filesystem::create_directory(path_);
  std::ofstream(path_ + "/secret") << std::string(64, 'b') << "\n";
  open();
  EXPECT_EQ(store_->secret()[0], 0xbb);
}

// Older copies.

TEST_F(JournalStoreTest, AnOlderCopyTakesNoClaimsAndGoesOnReplaying) {
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

TEST_F(JournalStoreTest, AnAcceptedLossIsOver) {
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
  const Result<LossAcceptance> accepted = accept_lost_memory_journal(path_);
  ASSERT_TRUE(accepted);
  EXPECT_EQ(*accepted, LossAcceptance::noted) << "no process has it open";
  open();
  EXPECT_TRUE(store_->healthy());
  EXPECT_TRUE(claim(3));
  store_.reset();
  open();
  EXPECT_TRUE(claim(4)) << "and it stays over";
}

TEST_F(JournalStoreTest, TheFolderThatWasMissingMayBePutBack) {
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

TEST_F(JournalStoreTest, AnEmptiedFolderIsALossToo) {
  open();
  store_.reset();
  std::filesystem::remove_all(path_);
  open();
  EXPECT_THAT(refusal(1), HasSubstr("the folder was emptied or exchanged"));
}

TEST_F(JournalStoreTest, AMissingOrTornWitnessIsMadeAnew) {
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

TEST_F(JournalStoreTest, ANoteThatNothingWasLostForDoesNotAcceptALaterLoss) {
  open();
  store_.reset();
  copy_folder(path_, root_ + "/copy");
  ASSERT_TRUE(accept_lost_memory_journal(path_));
  open();
  ASSERT_TRUE(claim(1));
  store_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_ + "/accept-loss"));
  put_back(root_ + "/copy");
  open();
  EXPECT_FALSE(refusal(1).empty());
}

TEST_F(JournalStoreTest, AKillLeavesTheWitnessBehindTheStoreAndNeverAhead) {
  OtherProcess other("DISABLED_OtherProcessCompletesKeys", path_);
  while (const std::optional<std::uint64_t> acknowledged = other.next_number()) {
    if (*acknowledged == 200) other.kill();
  }
  open();
  EXPECT_TRUE(store_->healthy());
}

// The clock.

TEST_F(JournalStoreTest, AClockThatIsAheadAfterARebootForgetsNothingUntilItIsSynchronised) {
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

TEST_F(JournalStoreTest, AClockThatCatchesUpTakesNothingFromWhatWasWrittenBefore) {
  open_on_the_machine();
  store_.reset();
  machine_.reboot(2 * kRetention, /*synchronised=*/false);
  open_on_the_machine();
  ASSERT_TRUE(claim(1));
  machine_.wall_is_right = true;
  ASSERT_TRUE(store_->maintain());
  EXPECT_TRUE(find(1)) << "claimed a moment ago";
}

} // namespace
} // namespace oncekey::journal_tests
