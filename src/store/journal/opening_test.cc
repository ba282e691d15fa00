// What the store finds when it is opened: no folder, a full disk, another process, damage.
#include "store/journal/store_on_disk.h"

namespace oncekey::journal_tests {
namespace {

TEST_F(JournalStoreTest, MakesTheDirectoryAndItsParents) {
  path_ = root_ + "/a/b/c/";
  open();
  EXPECT_TRUE(std::filesystem::exists(root_ + "/a/b/c/CURRENT"));
}

TEST_F(JournalStoreTest, AFileInPlaceOfTheDirectoryIsRefused) {
  std::ofstream(path_) << "a file";
  EXPECT_THAT(open_fault().message, HasSubstr("is a file"));
}

TEST_F(JournalStoreTest, ADirectoryThatCannotBeMadeIsRefused) {
  std::ofstream(root_ + "/file") << "a file";
  path_ = root_ + "/file/store";
  EXPECT_THAT(open_fault().message, HasSubstr("cannot be created"));
}

TEST_F(JournalStoreTest, AFullDiskIsRefusedBeforeAnythingIsOpened) {
  FaultyFiles& files = open_on_faulty_files();
  store_.reset();
  files.is_full = true;
  const Fault fault = open_fault(env_.get());
  EXPECT_EQ(fault.kind, FaultKind::unavailable);
  EXPECT_THAT(fault.message, HasSubstr("is full"));
  files.is_full = false;
  open(env_.get());
}

TEST_F(JournalStoreTest, LargeAnswersDoNotTakeTheRoomOfOtherEndings) {
  FaultyFiles& files = open_on_faulty_files();
  files.is_full = true;
  std::uint64_t number = 0;
  while (number < 100'000 && claim(number)) ++number;
  const std::string large(std::size_t{100} << 10, 'x');
  std::uint64_t kept = 0;
  while (kept < number && complete(kept, large)) ++kept;
  for (std::uint64_t each = kept; each < number; ++each)
    ASSERT_TRUE(complete(each, "done")) << each << " of " << number;
}

// Claims are refused while segments cannot be sealed, endings find room, and everything goes on when there is room.
class ShortOfRoom : public JournalStoreTest {
 protected:
  void outlives(std::atomic<bool> FaultyFiles::*shortage) {
    FaultyFiles& files = open_on_faulty_files();
    ASSERT_TRUE(claim(1));
    ASSERT_TRUE(complete(1, "kept"));
    files.*shortage = true;
    std::uint64_t number = 2;
    for (; number < 100'000 && claim(number); ++number) {
      // A large body may not fit any more; an ending always does.
      const bool kept_whole = complete(number, std::string(std::size_t{50} << 10, 'x')).ok();
      ASSERT_TRUE(kept_whole || complete(number, "done").ok());
    }
    const Result<ClaimAnswer> refused = claim(number);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.fault().kind, FaultKind::unavailable);
    EXPECT_THAT(refused.fault().message, HasSubstr("full"));
    EXPECT_FALSE(store_->healthy());
    EXPECT_EQ(find(1)->record->response->body, "kept");
    EXPECT_EQ(find(number), std::nullopt) << "what could not be written did not happen";
    EXPECT_EQ(fatal_calls_, 0);

    files.*shortage = false;
    while (!store_->healthy()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(claim(number));
    store_.reset();
    open(env_.get());
    for (std::uint64_t each = 1; each <= number; ++each) EXPECT_TRUE(find(each)) << each;
  }
};

TEST_F(ShortOfRoom, AFullDiskRefusesClaimsAndNothingElse) { outlives(&FaultyFiles::is_full); }

TEST_F(ShortOfRoom, ALackOfDescriptorsIsOutlivedToo) { outlives(&FaultyFiles::out_of_descriptors); }

TEST_F(JournalStoreTest, WhatWasBegunBeforeClaimsAreRefusedCanEnd) {
  FaultyFiles& files = open_on_faulty_files();
  files.is_full = true;
  std::uint64_t number = 0;
  while (number < 100'000 && claim(number)) ++number;
  ASSERT_FALSE(claim(number));
  for (std::uint64_t each = 0; each < number; ++each) ASSERT_TRUE(complete(each, "done")) << each << " of " << number;
}

TEST_F(JournalStoreTest, ASecondStoreOnTheSameDirectoryIsRefused) {
  open();
  const Fault fault = open_fault();
  EXPECT_EQ(fault.kind, FaultKind::conflict);
  EXPECT_THAT(fault.message, HasSubstr("is in use by another process"));
}

TEST_F(JournalStoreTest, AnotherProcessOnTheSameDirectoryIsRefused) {
  OtherProcess other("DISABLED_OtherProcessHoldsTheStore", path_);
  ASSERT_TRUE(other.next_number()) << "it has opened the store";
  EXPECT_THAT(open_fault().message, HasSubstr("is in use by another process"));
  other.kill();
  open();
}

TEST_F(JournalStoreTest, ANewerStoreFormatIsRefusedNamingBothVersions) {
  open();
  store_.reset();
  overwrite(path_ + "/meta", 0, encode_meta(kStoreFormat + 6, StoreId{}, HashBytes{}));
  const Fault fault = open_fault();
  EXPECT_EQ(fault.kind, FaultKind::newer_format);
  EXPECT_THAT(fault.message, HasSubstr(fmt::format("has format {}", kStoreFormat + 6)));
  EXPECT_THAT(fault.message, HasSubstr(fmt::format("up to {}", kStoreFormat)));
}

TEST_F(JournalStoreTest, RecordsWithoutMetaDataAreDamageNotANewStore) {
  open();
  ASSERT_TRUE(claim(1));
  store_.reset();
  std::filesystem::remove(path_ + "/meta");
  EXPECT_EQ(open_fault().kind, FaultKind::corrupt);
}

TEST_F(JournalStoreTest, DamagedMetaDataIsRefused) {
  open();
  store_.reset();
  overwrite(path_ + "/meta", 20, "damage");
  EXPECT_EQ(open_fault().kind, FaultKind::corrupt);
}

// Damage.

TEST_F(JournalStoreTest, ADamagedFileOfOldRecordsIsAFaultAndNeverAbsent) {
  open();
  ASSERT_TRUE(claim(1));
  ASSERT_TRUE(complete(1, "the answer of long ago"));
  store_.reset();
  open(); // what a start finds in the log is sealed
  const auto sorted_file = [&]() -> std::filesystem::path {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().extension() == ".sst" && content_of(entry.path()).find("long ago") != std::string::npos)
        return entry.path();
    }
    return {};
  };
  while (sorted_file().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  store_.reset();
  overwrite(sorted_file(), content_of(sorted_file()).find("long ago"), "xxxxxxxx");
  open();
  const Result<ClaimAnswer> answer = claim(1);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::corrupt);
  EXPECT_FALSE(complete(1, "another answer"));
}

TEST_F(JournalStoreTest, ATornTailOfTheLogIsToleratedAndDamageIsRefused) {
  open();
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(claim(i));
  store_.reset();
  const std::string copy = root_ + "/copy";
  copy_folder(path_, copy);

  // The last batch begins with the last sector that has its mark; as it was before means zeros.
  const std::string log = content_of(segment());
  const std::size_t last = log.rfind("OKJ1");
  overwrite(segment(), last, std::string(512, '\0'));
  open(); // the last write was the clock's
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_TRUE(find(i)) << i;
  store_.reset();

  put_back(copy);
  overwrite(segment(), last + 100, "damage");
  EXPECT_EQ(open_fault().kind, FaultKind::corrupt);
  put_back(copy);
  overwrite(segment(), 1200, "damage");
  EXPECT_EQ(open_fault().kind, FaultKind::corrupt);
}

TEST_F(JournalStoreTest, AMissingLogIsDamageOnceSomethingWasSealed) {
  open();
  ASSERT_TRUE(claim(1));
  store_.reset();
  open();
  ASSERT_TRUE(claim(2));
  while (store_->stats().buckets == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  store_.reset();
  std::filesystem::remove_all(path_ + "/log");
  const Fault fault = open_fault();
  EXPECT_EQ(fault.kind, FaultKind::corrupt);
  EXPECT_THAT(fault.message, HasSubstr("segments of its log are missing"));
}

} // namespace
} // namespace oncekey::journal_tests
