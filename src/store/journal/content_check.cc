#include "store/journal/content_check.h"

#include "core/record_codec.h"
#include "store/journal/buckets.h"
#include "store/journal/fences.h"
#include "store/journal/known_ids.h"
#include "store/journal/text_index.h"
#include "store/journal/time_index.h"
#include "store/journal/unsettled.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kRestoreOrRelease =
    "restore a backup, or release that key if it may be executed again (oncekey keys)";

} // namespace

void ContentCheck::look_at_family(const ClosedStore::OpenFamily& open, std::uint64_t bytes_on_disk) {
  std::uint64_t entries = 0;
  store_.db->GetIntProperty(open.handle.get(), rocksdb::DB::Properties::kEstimateNumKeys, &entries);
  // Blocks are compressed: how far the reading has come is told by the share of the entries.
  const std::uint64_t work_each = kWorkOfByte * bytes_on_disk / std::max<std::uint64_t>(1, entries);
  if (open.family.kind == FamilyKind::records) collect_sealed_fronts(open);
  rocksdb::ReadOptions options = passing_by();
  options.verify_checksums = true;
  const std::unique_ptr<rocksdb::Iterator> at(store_.db->NewIterator(options, open.handle.get()));
  for (at->SeekToFirst(); at->Valid() && !findings_.given_up(); at->Next()) {
    look_at_entry(open, at->key().ToStringView(), at->value().ToStringView());
    findings_.read(work_each);
  }
  if (!at->status().ok())
    findings_.problem(fault_of(at->status(), fmt::format("{} cannot be read to its end", open.name)), kKeepAndRestore);
}

void ContentCheck::collect_sealed_fronts(const ClosedStore::OpenFamily& open) {
  sealed_fronts_.clear();
  const auto collect = [this](std::string_view key, std::string_view fronts) -> Result<bool> {
    if (!is_sealed_ids_key(key)) return true;
    for (; fronts.size() >= kIdFrontBytes; fronts.remove_prefix(kIdFrontBytes))
      sealed_fronts_.emplace_back(front_of_id(fronts));
    return true;
  };
  // What cannot be read is told by the look at all entries.
  (void)scan(*store_.db, open.handle.get(), kSealedIdsPrefix, open.name, collect);
  std::sort(sealed_fronts_.begin(), sealed_fronts_.end());
}

void ContentCheck::look_at_young() {
  for (const ClosedStore::Young& entries : store_.young) {
    for (const auto& [key, entry] : entries) {
      if (!entry.erased) look_at_content(entry.family, key, entry.value);
    }
  }
}

void ContentCheck::look_at_entry(const ClosedStore::OpenFamily& open, std::string_view key, std::string_view value) {
  const bool is_records = open.family.kind == FamilyKind::records;
  if (is_records && is_time_key(key)) {
    if (value.size() % sizeof(RecordId) != 0)
      findings_.problem(fmt::format("an entry of the index by time in {} has the wrong length", open.name),
                        kKeepAndRestore);
    return;
  }
  if (is_records && (is_text_key(key) || is_sealed_ids_key(key))) return;
  if (store_.young_entry(open.family.kind, key) != nullptr) {
    // The old value counts no more, and must still be one.
    if (is_records) check_former_record(key, value);
    return;
  }
  look_at_content(open.family, key, value);
  if (is_records) look_at_indexes(open, key, value);
}

void ContentCheck::check_former_record(std::string_view key, std::string_view value) {
  const Result<Record> record = decode_record(without_reference(value), DecodeBody::yes);
  if (record) return;
  const std::optional<RecordId> id = id_in_key(key, 0);
  findings_.problem(Fault{record.fault().kind, fmt::format("a former value of record {}: {}",
                                                           id ? to_hex(*id) : "without an id", record.fault().message)},
                    kKeepAndRestore);
}

void ContentCheck::look_at_content(const Family& family, std::string_view key, std::string_view value) {
  switch (family.kind) {
    case FamilyKind::store:
      return look_at_own(key, value);
    case FamilyKind::records:
      return look_at_record(family, key, value);
    case FamilyKind::jobs:
      return look_at_job(key, value);
  }
}

void ContentCheck::look_at_own(std::string_view key, std::string_view value) {
  if (key == kClockKey) {
    if (const auto mark = decode_clock_mark(value); !mark) findings_.problem(mark.fault());
  } else if (key == kFenceKey && value.size() != sizeof(std::uint64_t)) {
    findings_.problem("the counter of fences does not have 8 bytes", kRestoreBackup);
  } else if (key == kLossKey) {
    findings_.report.notes.push_back(fmt::format(
        "{}: {}",
        findings_.report.loss_accepted
            ? "an operator has accepted that the store has lost its memory: it accepts claims again at its next start"
            : "the store has lost its memory and refuses claims",
        value));
  } else if (key.starts_with("job/")) {
    ++findings_.report.jobs_not_over;
  }
}

void ContentCheck::look_at_record(const Family& family, std::string_view key, std::string_view value) {
  const std::optional<RecordId> id = id_in_key(key, 0);
  if (!id) {
    findings_.problem(fmt::format("a key of {} bytes in {} is not a record's", key.size(), to_string(family.bucket)),
                      kKeepAndRestore);
    return;
  }
  std::string_view rest = value;
  const std::optional<BodyReference> body = take_body_reference(rest);
  const Result<Record> record = decode_record(rest, DecodeBody::yes);
  if (!record) {
    findings_.problem(Fault{record.fault().kind, fmt::format("record {}: {}", to_hex(*id), record.fault().message)},
                      kKeepAndRestore);
    return;
  }
  count_record(*record, findings_.report);
  if (body) look_at_body(BodyFileKind::response, *id, *body);
}

void ContentCheck::look_at_job(std::string_view key, std::string_view value) {
  const std::optional<RecordId> id = id_in_key(key, 1);
  if (!id || (key[0] != 's' && key[0] != 'm')) {
    findings_.problem(fmt::format("a key of {} bytes is not a job's", key.size()), kKeepAndRestore);
    return;
  }
  Status sound = ok_status();
  if (key[0] == 's') {
    ++findings_.report.jobs;
    if (const auto job = decode_job(*id, value); !job) sound = job.fault();
  } else {
    std::string_view rest = value;
    if (const std::optional<BodyReference> body = take_body_reference(rest))
      return look_at_body(BodyFileKind::message, *id, *body);
    if (const auto message = decode_message(rest); !message) sound = message.fault();
  }
  if (!sound) {
    findings_.problem(Fault{sound.fault().kind, fmt::format("job {}: {}", to_hex(*id), sound.fault().message)},
                      kKeepAndRestore);
  }
}

void ContentCheck::look_at_body(BodyFileKind kind, const RecordId& id, const BodyReference& body) {
  const std::string name = fmt::format("{}-{}-{:016x}", static_cast<char>(kind), to_hex(id), body.number);
  referred_.insert(name);
  const std::string path = fmt::format("{}/bodies/{}", store_.folder, name);
  const Result<std::uint64_t> checksum = checksum_of_file(path, body.bytes, findings_);
  if (!checksum) {
    findings_.problem(checksum.fault(), kRestoreOrRelease);
  } else if (*checksum != body.checksum) {
    findings_.problem(fmt::format("{} is damaged: its checksum does not match its bytes", path), kRestoreOrRelease);
  }
}

void ContentCheck::look_at_indexes(const ClosedStore::OpenFamily& open, std::string_view key, std::string_view value) {
  const std::optional<RecordId> id = id_in_key(key, 0);
  const Result<Record> record = decode_record(without_reference(value), DecodeBody::no);
  if (!id || !record) return;
  if (!std::binary_search(sealed_fronts_.begin(), sealed_fronts_.end(), front_of_id(key))) {
    findings_.problem(
        fmt::format("record {} is not among the sealed ids of {}: a retry of it would be taken for a first "
                    "request",
                    to_hex(*id), open.name),
        kKeepAndRestore);
  }
  const std::string_view key_text = front_of(without_reference(value)).key;
  if (store_.text_hash && !key_text.empty()) {
    std::string ignored;
    const std::string text = text_key(*store_.text_hash, key_text).append(key);
    if (!store_.db->Get({}, open.handle.get(), text, &ignored).ok()) {
      findings_.problem(
          fmt::format("record {} is missing in the index by text: a search by its key does not find it", to_hex(*id)),
          "nothing is executed twice by that; search by the id");
    }
  }
  if (!is_in_time_index(open, record->first_received, key)) {
    findings_.problem(fmt::format("record {} is missing in the index by time: listings do not show it", to_hex(*id)),
                      "nothing is executed twice by that; search by the key or the id");
  }
  const Time now = std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
  if (record->state == RecordState::completed || now >= record->expires_at) return;
  if (!is_among_unsettled(*id)) {
    findings_.problem(fmt::format("record {} is not settled and missing in the index of these", to_hex(*id)),
                      "nothing is executed twice by that; settle it by its id (oncekey keys)");
  }
}

bool ContentCheck::is_in_time_index(const ClosedStore::OpenFamily& open, Time first_received, std::string_view key) {
  const std::string from = time_key(first_received, 0);
  const std::string prefix = from.substr(0, sizeof(std::uint64_t));
  if (!time_iterator_ || time_family_ != open.handle.get()) {
    time_iterator_.reset(store_.db->NewIterator(passing_by(), open.handle.get()));
    time_family_ = open.handle.get();
  }
  rocksdb::Iterator& at = *time_iterator_;
  for (at.Seek(from); at.Valid() && at.key().starts_with(prefix); at.Next()) {
    if (!is_time_key(at.key().ToStringView())) continue;
    std::string_view ids = at.value().ToStringView();
    for (; ids.size() >= key.size(); ids.remove_prefix(key.size())) {
      if (ids.substr(0, key.size()) == key) return true;
    }
  }
  return false;
}

bool ContentCheck::is_among_unsettled(const RecordId& id) const {
  const std::string entry = key_with_id(kUnsettledPrefix, id);
  if (const auto* young = store_.young_entry(FamilyKind::store, entry)) return !young->erased;
  std::string ignored;
  return store_.db->Get({}, store_.db->DefaultColumnFamily(), entry, &ignored).ok();
}

void count_record(const Record& record, StoreReport& report) {
  switch (record.state) {
    case RecordState::in_progress:
      ++report.in_progress;
      break;
    case RecordState::indeterminate:
      ++report.indeterminate;
      break;
    case RecordState::completed:
      ++report.completed;
      break;
  }
}

} // namespace oncekey
