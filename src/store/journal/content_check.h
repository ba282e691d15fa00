// ContentCheck: reads every record, job and message of a closed store, with the files of large bodies, and compares
// records with the indexes by time and by text, and what is not settled with its entries.
#pragma once

#include "store/journal/body_files.h"
#include "store/journal/closed_store.h"

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

class ContentCheck {
 public:
  // Looking at a record and its entries takes so many times as long as summing up its bytes: 17 MB a second beside some
  // hundred.
  static constexpr std::uint64_t kWorkOfByte = 20;

  ContentCheck(const ClosedStore& store, StoreFindings& findings) : store_(store), findings_(findings) {}

  // All entries of a family, which has so many bytes on disk.
  void look_at_family(const ClosedStore::OpenFamily& open, std::uint64_t bytes_on_disk);
  // All entries of the log.
  void look_at_young();
  // Whether an entry that was looked at refers to that file of a large body.
  bool refers_to(const std::string& body_file) const { return referred_.contains(body_file); }

 private:
  void look_at_entry(const ClosedStore::OpenFamily& open, std::string_view key, std::string_view value);
  void check_former_record(std::string_view key, std::string_view value);
  void look_at_content(const Family& family, std::string_view key, std::string_view value);
  void look_at_own(std::string_view key, std::string_view value);
  void look_at_record(const Family& family, std::string_view key, std::string_view value);
  void look_at_job(std::string_view key, std::string_view value);
  void look_at_body(BodyFileKind kind, const RecordId& id, const BodyReference& body);
  void collect_sealed_fronts(const ClosedStore::OpenFamily& open);
  // A sealed record is among the ids that its bucket knows, has entries in both indexes, and one among what is not
  // settled unless it is.
  void look_at_indexes(const ClosedStore::OpenFamily& open, std::string_view key, std::string_view value);
  bool is_in_time_index(const ClosedStore::OpenFamily& open, Time first_received, std::string_view key);
  bool is_among_unsettled(const RecordId& id) const;

  const ClosedStore& store_;
  StoreFindings& findings_;
  std::set<std::string> referred_;
  std::vector<std::string> sealed_fronts_; // of the family that is looked at, in order
  std::unique_ptr<rocksdb::Iterator> time_iterator_;
  const rocksdb::ColumnFamilyHandle* time_family_ = nullptr;
};

// Counts the record in the report by its state.
void count_record(const Record& record, StoreReport& report);

} // namespace oncekey
