// What `oncekey store verify` finds in a closed store.
#include "store/journal/examine.h"
#include "store/journal/buckets.h"
#include "store/journal/store_on_disk.h"

namespace oncekey::journal_tests {
namespace {

class ExamineTest : public JournalStoreTest {
 protected:
  StoreReport examine() {
    const Result<StoreReport> report = examine_journal(path_, {});
    EXPECT_TRUE(report) << report.fault().message;
    return report ? *report : StoreReport{};
  }
  // Erases the entries of this kind from all buckets, behind the closed store's back.
  template <class IsIt>
  void erase_entries(IsIt is_it) {
    const rocksdb::ColumnFamilyOptions options = bucket_options();
    std::vector<std::string> names;
    ASSERT_TRUE(rocksdb::DB::ListColumnFamilies({}, path_, &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, options);
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* raw = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(database_options(), path_, families, &handles, &raw).ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    std::size_t erased = 0;
    for (rocksdb::ColumnFamilyHandle* const handle : handles) {
      std::vector<std::string> keys;
      const std::unique_ptr<rocksdb::Iterator> at(db->NewIterator(passing_by(), handle));
      for (at->SeekToFirst(); at->Valid(); at->Next()) {
        if (is_it(at->key().ToStringView())) keys.push_back(at->key().ToString());
      }
      for (const std::string& key : keys) EXPECT_TRUE(db->Delete(durably(), handle, key).ok());
      erased += keys.size();
    }
    for (rocksdb::ColumnFamilyHandle* const handle : handles) db->DestroyColumnFamilyHandle(handle);
    EXPECT_GT(erased, 0u);
  }
};

TEST_F(ExamineTest, MissesARecordThatItsBucketDoesNotKnow) {
  open();
  ASSERT_TRUE(claim(1));
  seal();
  store_.reset();
  ASSERT_TRUE(examine().sound());
  erase_entries(is_sealed_ids_key);
  const StoreReport report = examine();
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_THAT(report.problems[0].what, HasSubstr("would be taken for a first request"));
}

TEST_F(ExamineTest, MissesARecordInTheIndexByText) {
  open();
  ClaimRequest request = claim_of(1);
  request.key = "order 7";
  std::promise<void> claimed;
  store_->claim(std::move(request), [&](const Result<ClaimAnswer>&) { claimed.set_value(); });
  claimed.get_future().wait();
  seal();
  store_.reset();
  erase_entries(is_text_key);
  const StoreReport report = examine();
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_THAT(report.problems[0].what, HasSubstr("missing in the index by text"));
}

} // namespace
} // namespace oncekey::journal_tests
