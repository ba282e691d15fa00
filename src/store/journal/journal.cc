#include "store/journal/journal.h"

#include <oncekey/check.h>

#include "core/codec_parts.h"

#include <fmt/format.h>

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace oncekey {
namespace {

// More than this does not wait together, so that a few large values do not delay all others.
constexpr std::size_t kBatchBytesMax = std::size_t{1} << 20;
// After a failure to seal, or to make a segment.
constexpr std::chrono::seconds kTryAgainAfter{1};

// Of an entry beside its key and value: what is done, the family, and two lengths.
constexpr std::size_t kEntryBytes = 1 + 1 + 1 + 8 + 4 + 4;

EntryPlace add_entry(std::string& payload, const Family& family, std::string_view key, std::string_view value,
                     bool erased) {
  codec::put<std::uint8_t>(payload, erased ? 1 : 0);
  codec::put<std::uint8_t>(payload, static_cast<std::uint8_t>(family.kind));
  codec::put<std::uint8_t>(payload, static_cast<std::uint8_t>(family.bucket.width_log2));
  codec::put<std::int64_t>(payload, family.bucket.index);
  codec::put_bytes(payload, key);
  EntryPlace place{static_cast<std::uint32_t>(payload.size() - key.size()), static_cast<std::uint32_t>(key.size())};
  codec::put_bytes(payload, value);
  place.value = static_cast<std::uint32_t>(payload.size() - value.size());
  place.value_bytes = static_cast<std::uint32_t>(value.size());
  return place;
}

// The table's newest payload once more, entry by entry.
Status replay(YoungTable& table) {
  const std::string_view payload = table.payload();
  codec::Cursor cursor(payload);
  while (!cursor.at_end()) {
    const bool erased = cursor.number<std::uint8_t>() != 0;
    Family family{static_cast<FamilyKind>(cursor.number<std::uint8_t>())};
    family.bucket.width_log2 = cursor.number<std::uint8_t>();
    family.bucket.index = cursor.number<std::int64_t>();
    const std::string_view key = cursor.bytes(payload.size());
    const std::string_view value = cursor.bytes(payload.size());
    if (!cursor.ok()) return corrupt("a batch of the journal does not have the shape of entries");
    const auto at = [&](std::string_view part) { return static_cast<std::uint32_t>(part.data() - payload.data()); };
    table.change(family,
                 {at(key), static_cast<std::uint32_t>(key.size()), at(value), static_cast<std::uint32_t>(value.size())},
                 erased);
  }
  return ok_status();
}

} // namespace

Journal::Journal(SegmentFiles& files, ColdStore& cold, JournalOptions options)
    : files_(files), cold_(cold), options_(std::move(options)), end_(options_.sealed) {}

Result<std::unique_ptr<Journal>> Journal::open(SegmentFiles& files, ColdStore& cold, JournalOptions options) {
  std::unique_ptr<Journal> journal(new Journal(files, cold, std::move(options)));
  if (const Status recovered = journal->recover(); !recovered) return recovered.fault();
  journal->writer_ = journal->options_.make_writer([at = journal.get()](int error) { at->written(error); });
  journal->sealer_ = std::thread([at = journal.get()] { at->seal_in_background(); });
  return journal;
}

Journal::~Journal() {
  // Each write that ends begins the next one.
  const auto writes = [this] {
    const std::lock_guard lock(mutex_);
    flush();
    return writing_;
  };
  while (writer_ != nullptr && writes()) writer_->wait();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  seal_.notify_one();
  if (sealer_.joinable()) sealer_.join();
}

Status Journal::recover() {
  if (files_.numbers().empty()) {
    if (const Result<std::uint32_t> made = files_.make(); !made) return made.fault();
  }
  std::vector<MappedFile> mapped;
  std::vector<SegmentBytes> contents;
  for (const std::uint32_t number : files_.numbers()) {
    Result<MappedFile> file = files_.map(number);
    if (!file) return std::move(file).fault();
    mapped.push_back(*std::move(file));
    contents.push_back({number, mapped.back().bytes()});
  }
  const auto visit = [&](const LogEnd& batch, std::string_view payload) {
    if (segments_.empty() || segments_.back()->epoch != batch.epoch) {
      segments_.push_back(std::make_unique<Segment>());
      segments_.back()->epoch = batch.epoch;
      segments_.back()->first = batch.sequence;
    }
    Segment& segment = *segments_.back();
    segment.last = batch;
    segment.table->begin_batch();
    segment.table->payload() = payload;
    return replay(*segment.table);
  };
  const Result<RecoveredLog> log = recover_log(options_.salt, options_.sealed, contents, visit);
  if (!log) return log.fault();
  for (std::size_t at = 0; at < segments_.size(); ++at) segments_[at]->number = log->live[at].number;
  end_ = written_end_ = log->end;
  newest_epoch_ = log->newest_epoch;
  free_.assign(log->free.begin(), log->free.end());
  return ok_status();
}

bool Journal::fits(std::size_t entries, std::size_t bytes) const {
  const std::size_t needed = batch_bytes(entries * kEntryBytes + bytes);
  if (needed > files_.segment_bytes() || failed_) return false;
  if (!free_.empty()) return true;
  if (in_use_ == nullptr) return false;
  const std::size_t built = building_ ? batch_bytes(batches_.back().payload.size()) : 0;
  return in_use_->used + built + needed <= files_.segment_bytes();
}

void Journal::begin_step(std::size_t entries, std::size_t bytes) {
  const std::size_t needed = entries * kEntryBytes + bytes;
  if (building_) {
    const Batch& batch = batches_.back();
    const std::size_t grown = batch.payload.size() + needed;
    const bool fits = &batch.segment == in_use_ && batch.offset + batch_bytes(grown) <= files_.segment_bytes();
    if (fits && (grown <= kBatchBytesMax || batch.payload.empty())) return;
    end_batch();
  }
  begin_batch(needed);
}

void Journal::begin_batch(std::size_t payload_bytes) {
  if (in_use_ == nullptr || in_use_->used + batch_bytes(payload_bytes) > files_.segment_bytes()) {
    ONCEKEY_CHECK(!free_.empty(), "a step that does not fit is not begun");
    auto segment = std::make_unique<Segment>();
    segment->number = free_.front();
    free_.pop_front();
    segment->epoch = ++newest_epoch_;
    segment->first = end_.sequence + batches_.size() + 1;
    in_use_ = segment.get();
    segments_.push_back(std::move(segment));
    room_.store(!free_.empty() || needs_segment(), std::memory_order_relaxed);
    seal_.notify_one();
  }
  in_use_->table->begin_batch();
  ++in_use_->batches_open;
  batches_.push_back({*in_use_, in_use_->table->payload(), end_.sequence + batches_.size() + 1, in_use_->used});
  building_ = true;
}

void Journal::end_batch() {
  const Batch& batch = batches_.back();
  batch.segment.used += batch_bytes(batch.payload.size());
  building_ = false;
}

void Journal::put(const Family& family, std::string_view key, std::string_view value) {
  append(family, key, value, false);
}

void Journal::erase(const Family& family, std::string_view key) { append(family, key, {}, true); }

void Journal::append(const Family& family, std::string_view key, std::string_view value, bool erased) {
  const Batch& batch = batches_.back();
  batch.segment.table->change(family, add_entry(batch.payload, family, key, value, erased), erased);
}

std::optional<Journal::Found> Journal::find(FamilyKind kind, std::string_view key) const {
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    const YoungTable& table = *(*segment)->table;
    const YoungTable::Entry* const entry = table.find(kind, key);
    if (entry == nullptr) continue;
    return Found{(*segment)->table, entry->family, table.value_of(*entry), entry->erased,
                 (*segment)->first + entry->batch};
  }
  return std::nullopt;
}

std::vector<std::shared_ptr<const YoungTable>> Journal::tables() const {
  std::vector<std::shared_ptr<const YoungTable>> tables;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) tables.push_back((*segment)->table);
  return tables;
}

void Journal::when_durable(std::uint64_t sequence, Durable done) {
  batches_[sequence - batches_.front().sequence].waiting.push_back(std::move(done));
}

void Journal::flush() {
  if (!writing_ && !failed_ && !batches_.empty()) write_next();
}

void Journal::write_next() {
  if (building_ && batches_.size() == 1) end_batch();
  const Batch& batch = batches_.front();
  const std::size_t bytes = batch_bytes(batch.payload.size());
  if (bytes > buffer_bytes_) {
    buffer_.reset(static_cast<char*>(std::aligned_alloc(kBlockBytes, bytes)));
    ONCEKEY_CHECK(buffer_ != nullptr, "there is memory for a batch");
    buffer_bytes_ = bytes;
  }
  const SegmentName name{options_.salt, batch.segment.number};
  written_end_ = lay_out_batch(name, end_, batch.segment.epoch, batch.offset, batch.payload, {buffer_.get(), bytes});
  writing_ = true;
  writer_->write(files_.descriptor(batch.segment.number), {buffer_.get(), bytes}, batch.offset);
}

void Journal::written(int error) {
  std::vector<Durable> waiting;
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (error != 0) {
      failed_ = true;
    } else {
      Batch& batch = batches_.front();
      end_ = batch.segment.last = written_end_;
      --batch.segment.batches_open;
      waiting = std::move(batch.waiting);
      if (&batch.segment != in_use_ && batch.segment.batches_open == 0) seal_.notify_one();
      batches_.pop_front();
      syncs_.fetch_add(1, std::memory_order_relaxed);
      if (!batches_.empty() && !batches_.front().payload.empty()) write_next();
    }
  }
  if (error != 0) {
    return options_.on_fatal(
        fmt::format("the store could not make a write durable and stops, since trying again might lose it silently: {}",
                    std::strerror(error)));
  }
  for (const Durable& done : waiting) done();
}

// The oldest segment, once it gets no more batches and all it has are durable.
Journal::Segment* Journal::to_seal() const {
  if (segments_.empty()) return nullptr;
  Segment* const oldest = segments_.front().get();
  return oldest != in_use_ && oldest->batches_open == 0 ? oldest : nullptr;
}

bool Journal::needs_segment() const {
  return free_.empty() && segments_.size() < options_.segments_max;
}

void Journal::seal_in_background() {
  pthread_setname_np(pthread_self(), "sealer");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Status done = ok_status();
    bool worked = false;
    if (needs_segment()) {
      worked = true;
      lock.unlock();
      const Result<std::uint32_t> made = files_.make();
      lock.lock();
      if (made) free_.push_back(*made);
      else done = made.fault();
    }
    if (Segment* const segment = to_seal()) {
      worked = true;
      lock.unlock();
      const Status taken = cold_.take(*segment->table, segment->last);
      if (!taken) done = taken;
      lock.lock();
      if (taken) {
        free_.push_back(segment->number);
        segments_.pop_front();
        ++sealings_;
      }
    }
    room_.store(!free_.empty(), std::memory_order_relaxed);
    if (!worked) {
      seal_.wait(lock);
    } else if (!done) {
      lock.unlock();
      options_.on_sealing(done);
      lock.lock();
      seal_.wait_for(lock, kTryAgainAfter, [this] { return stopping_; });
    }
  }
}

} // namespace oncekey
