// What the store finds when it is opened: no folder, a full disk, another process, damage.
#include "store/rocksdb/store_on_disk.h"

namespace oncekey::rocksdb_tests {
namespace {

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

} // namespace
} // namespace oncekey::rocksdb_tests
