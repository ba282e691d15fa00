#include "store/journal/sorted_files.h"

#include "base/private_files.h"
#include "core/codec_parts.h"

#include <rocksdb/sst_file_writer.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSealedKey = "sealed";

rocksdb::Slice slice_of(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

Fault failed(std::string_view doing, const rocksdb::Status& status) {
  return unavailable(std::string(doing) + ": " + status.ToString());
}

std::string encode(const LogEnd& end) {
  std::string out;
  codec::put(out, end.epoch);
  codec::put(out, end.batch);
  codec::put(out, end.sequence);
  codec::put(out, end.checksum);
  codec::put_checksum(out, 0);
  return out;
}

Result<LogEnd> decode(std::string_view bytes) {
  codec::Cursor cursor(bytes);
  LogEnd end;
  end.epoch = cursor.number<std::uint32_t>();
  end.batch = cursor.number<std::uint32_t>();
  end.sequence = cursor.number<std::uint64_t>();
  end.checksum = cursor.number<std::uint64_t>();
  if (!cursor.ok() || encode(end) != bytes) return corrupt("the mark of how far the journal is sealed is damaged");
  return end;
}

using Entries = std::vector<const YoungTable::Entry*>;

// By key, one for each: what a key was put to comes before what it was erased from.
void sort_by_key(const YoungTable& table, Entries& entries) {
  const auto key = [&](const YoungTable::Entry* entry) { return table.key_of(*entry); };
  std::stable_sort(entries.begin(), entries.end(), [&](auto* a, auto* b) { return key(a) < key(b); });
  const auto same = [&](auto* a, auto* b) { return key(a) == key(b); };
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
}

} // namespace

SortedFiles::SortedFiles(rocksdb::DB& db, rocksdb::Options options, std::string folder, FamilyOf family_of)
    : db_(db), options_(std::move(options)), folder_(std::move(folder)), family_of_(std::move(family_of)) {}

Result<std::unique_ptr<SortedFiles>> SortedFiles::open(rocksdb::DB& db, rocksdb::Options options, std::string folder,
                                                       FamilyOf family_of) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (const Status made = make_private_folder(folder); !made) return made.fault();
  std::unique_ptr<SortedFiles> files(new SortedFiles(db, std::move(options), std::move(folder), std::move(family_of)));
  std::string mark;
  const rocksdb::Status read = db.Get({}, slice_of(kSealedKey), &mark);
  if (read.IsNotFound()) return files;
  if (!read.ok()) return failed("the mark of how far the journal is sealed could not be read", read);
  const Result<LogEnd> sealed = decode(mark);
  if (!sealed) return sealed.fault();
  files->sealed_ = *sealed;
  return files;
}

Status SortedFiles::take(const YoungTable& changes, const LogEnd& sealed) {
  std::map<Family, Entries> by_family;
  for (const auto* list : {&changes.entries(), &changes.left()}) {
    for (const YoungTable::Entry& entry : *list) by_family[entry.family].push_back(&entry);
  }
  by_family[Family{}]; // for the mark
  std::vector<rocksdb::IngestExternalFileArg> files;
  for (auto& [family, entries] : by_family) {
    rocksdb::ColumnFamilyHandle* const handle =
        family.kind == FamilyKind::store ? db_.DefaultColumnFamily() : family_of_(family);
    if (handle == nullptr) continue;
    sort_by_key(changes, entries);
    const std::string mark = family.kind == FamilyKind::store ? encode(sealed) : "";
    Result<std::string> file = write_file(files.size(), changes, entries, mark);
    if (!file) return std::move(file).fault();
    rocksdb::IngestExternalFileArg& arg = files.emplace_back();
    arg.column_family = handle;
    arg.external_files = {*std::move(file)};
    arg.options.move_files = true;
    arg.options.write_global_seqno = false;
  }
  const rocksdb::Status taken = db_.IngestExternalFiles(files);
  if (!taken.ok()) return failed("a sealed segment could not be taken up", taken);
  sealed_ = sealed;
  return ok_status();
}

// `mark` is among the entries of the store's own family, at its place.
Result<std::string> SortedFiles::write_file(std::size_t number, const YoungTable& changes, const Entries& entries,
                                            const std::string& mark) const {
  std::string path = folder_ + "/" + std::to_string(number) + ".sst";
  rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options_);
  rocksdb::Status added = writer.Open(path);
  bool marked = mark.empty();
  const auto put_mark = [&] {
    if (added.ok()) added = writer.Put(slice_of(kSealedKey), mark);
    marked = true;
  };
  for (const YoungTable::Entry* const entry : entries) {
    const std::string_view key = changes.key_of(*entry);
    if (!marked && kSealedKey < key) put_mark();
    if (!added.ok()) break;
    added = entry->erased ? writer.Delete(slice_of(key)) : writer.Put(slice_of(key), slice_of(changes.value_of(*entry)));
  }
  if (!marked) put_mark();
  if (added.ok()) added = writer.Finish();
  if (!added.ok()) return failed("a sorted file could not be written", added);
  return path;
}

} // namespace oncekey
