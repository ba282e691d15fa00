#include "store/journal/sorted_files.h"

#include "base/private_files.h"
#include "core/codec_parts.h"
#include "store/journal/database.h"

#include <fmt/format.h>
#include <rocksdb/sst_file_writer.h>

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

namespace oncekey {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSealedKey = "sealed";

template <class Place, class End>
void mark_fields(Place& place, End& end) {
  codec::each(place, end.epoch, end.batch, end.sequence, end.checksum);
}

std::string encode(const LogEnd& end) {
  std::string out;
  mark_fields(out, end);
  codec::put_checksum(out, 0);
  return out;
}

Result<LogEnd> decode(std::string_view bytes) {
  codec::Cursor cursor(bytes);
  LogEnd end;
  mark_fields(cursor, end);
  if (!cursor.ok() || encode(end) != bytes) return corrupt("the mark of how far the journal is sealed is damaged");
  return end;
}

} // namespace

Result<LogEnd> read_sealed_mark(rocksdb::DB& db) {
  std::string mark;
  const rocksdb::Status read = db.Get({}, slice_of(kSealedKey), &mark);
  if (read.IsNotFound()) return LogEnd{};
  if (!read.ok()) return fault_of(read, "the mark of how far the journal is sealed could not be read");
  return decode(mark);
}

SortedFiles::SortedFiles(rocksdb::DB& db, rocksdb::Options options, std::string folder, FamilyOf family_of,
                         Derive derive)
    : db_(db),
      options_(std::move(options)),
      folder_(std::move(folder)),
      family_of_(std::move(family_of)),
      derive_(std::move(derive)) {}

Result<std::unique_ptr<SortedFiles>> SortedFiles::open(rocksdb::DB& db, rocksdb::Options options, std::string folder,
                                                       FamilyOf family_of, Derive derive) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (const Status made = make_private_folder(folder); !made) return made.fault();
  std::unique_ptr<SortedFiles> files(
      new SortedFiles(db, std::move(options), std::move(folder), std::move(family_of), std::move(derive)));
  const Result<LogEnd> sealed = read_sealed_mark(db);
  if (!sealed) return sealed.fault();
  files->sealed_ = *sealed;
  return files;
}

Status SortedFiles::take(const YoungTable& changes, const LogEnd& sealed) {
  const std::unique_lock no_drops = pin();
  Status taken = try_to_take(changes, sealed);
  // After an error RocksDB takes nothing until it is told to go on.
  if (!taken) db_.Resume();
  return taken;
}

Status SortedFiles::try_to_take(const YoungTable& changes, const LogEnd& sealed) {
  const std::vector<Derived> derived = derive_(changes, sealed);
  const std::string mark = encode(sealed);
  std::map<Family, std::vector<Line>> by_family;
  by_family[Family{}].emplace_back(kSealedKey, mark);
  for (const Derived& each : derived) by_family[each.family].emplace_back(each.key, each.value);
  for (const YoungTable::Entry& entry : changes.entries()) {
    by_family[entry.family].emplace_back(changes.key_of(entry), changes.value_of(entry), entry.erased);
  }
  // What a key was put to comes before what it was erased from.
  for (const YoungTable::Entry& entry : changes.left()) {
    by_family[entry.family].emplace_back(changes.key_of(entry), std::string_view{}, true);
  }
  std::vector<rocksdb::IngestExternalFileArg> files;
  for (auto& [family, lines] : by_family) {
    const Result<rocksdb::ColumnFamilyHandle*> handle =
        family.kind == FamilyKind::store ? db_.DefaultColumnFamily() : family_of_(family, lines);
    if (!handle) return handle.fault();
    if (*handle == nullptr) continue;
    // A name is never used twice: the file of before may be one of the database's by now.
    Result<std::string> file = write_file(fmt::format("{}-{}-{}", sealed.sequence, ++written_, files.size()), lines);
    if (!file) return std::move(file).fault();
    rocksdb::IngestExternalFileArg& arg = files.emplace_back();
    arg.column_family = *handle;
    arg.external_files = {*std::move(file)};
    arg.options.move_files = true;
    arg.options.write_global_seqno = false;
  }
  const rocksdb::Status taken = db_.IngestExternalFiles(files);
  return status_of(taken, "a sealed segment could not be taken up");
}

SortedFiles::Line::Line(std::string_view line_key, std::string_view line_value, bool is_erased)
    : front(0), key(line_key), value(line_value), erased(is_erased) {
  std::memcpy(&front, key.data(), std::min(sizeof front, key.size()));
  front = be64toh(front);
}

Result<std::string> SortedFiles::write_file(const std::string& name, std::vector<Line>& lines) const {
  std::stable_sort(lines.begin(), lines.end());
  const auto same = [](const Line& a, const Line& b) { return a.key == b.key; };
  lines.erase(std::unique(lines.begin(), lines.end(), same), lines.end());
  std::string path = fmt::format("{}/{}.sst", folder_, name);
  rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options_);
  rocksdb::Status added = writer.Open(path);
  for (const Line& line : lines) {
    if (!added.ok()) break;
    added = line.erased ? writer.Delete(slice_of(line.key)) : writer.Put(slice_of(line.key), slice_of(line.value));
  }
  if (added.ok()) added = writer.Finish();
  if (!added.ok()) return fault_of(added, "a sorted file could not be written");
  return path;
}

} // namespace oncekey
