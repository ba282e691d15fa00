#include "store/journal/sorted_files.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

namespace oncekey {
namespace {

const Family kOwnFamily{};
const Family kBucket{FamilyKind::records, {20, 7}};
const Family kDropped{FamilyKind::records, {20, 1}};

class SortedFilesTest : public ::testing::Test {
 protected:
  SortedFilesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-sorted-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    open();
  }
  ~SortedFilesTest() override {
    close();
    std::filesystem::remove_all(folder_);
  }

  void open() {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    const std::vector<rocksdb::ColumnFamilyDescriptor> families{{rocksdb::kDefaultColumnFamilyName, options},
                                                                {"bucket", options}};
    ASSERT_TRUE(rocksdb::DB::Open(options, folder_ + "/db", families, &handles, &db_).ok());
    db_->DestroyColumnFamilyHandle(handles[0]);
    bucket_ = handles[1];
    auto files = SortedFiles::open(
        *db_, options, folder_ + "/new",
        [this](const Family& family, auto) { return family == kBucket ? bucket_ : nullptr; },
        [this](const YoungTable&, const LogEnd&) { return derived_; });
    ASSERT_TRUE(files) << files.fault().message;
    files_ = *std::move(files);
  }
  void close() {
    files_.reset();
    db_->DestroyColumnFamilyHandle(bucket_);
    delete db_;
  }

  static void add(YoungTable& table, const Family& family, const std::string& key, const std::string& value,
                  bool erased = false) {
    std::string& payload = table.payload();
    const auto at = static_cast<std::uint32_t>(payload.size());
    payload += key + value;
    const auto key_bytes = static_cast<std::uint32_t>(key.size());
    table.change(family, {at, key_bytes, at + key_bytes, static_cast<std::uint32_t>(value.size())}, erased);
  }
  std::string get(rocksdb::ColumnFamilyHandle* family, const std::string& key) {
    std::string value;
    const rocksdb::Status read = db_->Get({}, family, key, &value);
    return read.ok() ? value : read.IsNotFound() ? "absent" : read.ToString();
  }

  std::string folder_;
  rocksdb::DB* db_ = nullptr;
  rocksdb::ColumnFamilyHandle* bucket_ = nullptr;
  std::unique_ptr<SortedFiles> files_;
  std::vector<SortedFiles::Derived> derived_;
};

TEST_F(SortedFilesTest, WhatWasTakenIsThereWithItsMarkAfterTheNextOpen) {
  YoungTable first;
  first.begin_batch();
  add(first, kBucket, "b", "1");
  add(first, kBucket, "a", "1");
  add(first, kOwnFamily, "zone", "x");
  add(first, kOwnFamily, "clock", "y");
  add(first, kDropped, "gone", "1");
  ASSERT_TRUE(files_->take(first, {1, 1, 1, 99}));
  YoungTable second;
  second.begin_batch();
  add(second, kBucket, "a", "2");
  add(second, kBucket, "b", "", true);
  ASSERT_TRUE(files_->take(second, {2, 1, 2, 98}));
  close();
  open();
  EXPECT_EQ(get(bucket_, "a"), "2");
  EXPECT_EQ(get(bucket_, "b"), "absent");
  EXPECT_EQ(get(db_->DefaultColumnFamily(), "zone"), "x");
  EXPECT_EQ(get(db_->DefaultColumnFamily(), "clock"), "y");
  EXPECT_EQ(files_->sealed(), (LogEnd{2, 1, 2, 98}));
  ASSERT_TRUE(files_->take(second, {2, 1, 2, 98})) << "a repetition is harmless";
  EXPECT_EQ(get(bucket_, "a"), "2");
}

TEST_F(SortedFilesTest, AKeyThatLeftItsFamilyIsGoneThere) {
  YoungTable first;
  first.begin_batch();
  add(first, kBucket, "a", "1");
  ASSERT_TRUE(files_->take(first, {1, 1, 1, 99}));
  YoungTable second;
  second.begin_batch();
  add(second, Family{FamilyKind::records, {20, 9}}, "a", "2");
  add(second, kBucket, "a", "", true);
  ASSERT_TRUE(files_->take(second, {2, 1, 2, 98}));
  EXPECT_EQ(get(bucket_, "a"), "absent");
}

} // namespace
} // namespace oncekey
