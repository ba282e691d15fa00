#include "store/journal/segmented_log.h"

#include <oncekey/check.h>

#include "core/codec_parts.h"

#include <fmt/format.h>

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace oncekey {
namespace {

// More than this does not wait together, so that a few large values do not delay all others.
constexpr std::size_t kBatchBytesMax = std::size_t{1} << 20;
// What a claim and its answer take, roughly: a table with room for all of a segment need not grow.
constexpr std::size_t kExpectedBytesPerKey = 512;
// Requests that a write lets go on soon have something to write themselves. The next write waits for some of it,
// because a write costs more CPU time than a record: at 16 connections a fifth of a request's. No longer than so many
// turns of the loop, though, nor than so long.
constexpr int kGatherTurns = 8;
constexpr std::chrono::milliseconds kGatherTime{1};
// After a failure to seal, or to make a segment.
constexpr std::chrono::seconds kTryAgainAfter{1};

// The table's newest payload once more, entry by entry.
Status replay(YoungTable& table) {
  const std::string_view payload = table.payload();
  const auto at = [&](std::string_view part) { return static_cast<std::uint32_t>(part.data() - payload.data()); };
  return each_log_entry(payload, [&](const LogEntry& entry) {
    table.change(entry.family,
                 {at(entry.key), static_cast<std::uint32_t>(entry.key.size()), at(entry.value),
                  static_cast<std::uint32_t>(entry.value.size())},
                 entry.erased);
  });
}

} // namespace

Status each_log_entry(std::string_view payload, const std::function<void(const LogEntry& entry)>& visit) {
  codec::Cursor cursor(payload);
  while (!cursor.at_end()) {
    LogEntry entry;
    entry.erased = cursor.number<std::uint8_t>() != 0;
    entry.family.kind = static_cast<FamilyKind>(cursor.number<std::uint8_t>());
    entry.family.bucket.width_log2 = cursor.number<std::uint8_t>();
    entry.family.bucket.index = cursor.number<std::int64_t>();
    entry.key = cursor.bytes(payload.size());
    entry.value = cursor.bytes(payload.size());
    if (!cursor.ok()) return corrupt("a batch of the journal does not have the shape of entries");
    visit(entry);
  }
  return ok_status();
}

SegmentedLog::SegmentedLog(SegmentFiles& files, ColdStore& cold, SegmentedLogOptions options)
    : files_(files), cold_(cold), options_(std::move(options)), end_(options_.sealed) {}

Result<std::unique_ptr<SegmentedLog>> SegmentedLog::open(SegmentFiles& files, ColdStore& cold,
                                                         SegmentedLogOptions options) {
  std::unique_ptr<SegmentedLog> journal(new SegmentedLog(files, cold, std::move(options)));
  if (const Status recovered = journal->recover(); !recovered) return recovered.fault();
  journal->writer_ = journal->options_.make_writer([at = journal.get()](int error) { at->written(error); });
  return journal;
}

void SegmentedLog::start_sealing() {
  sealer_ = std::thread([this] { seal_in_background(); });
}

SegmentedLog::~SegmentedLog() {
  wait_until_durable();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  seal_.notify_one();
  if (sealer_.joinable()) sealer_.join();
}

Status SegmentedLog::recover() {
  if (files_.numbers().empty()) {
    if (const Result<std::uint32_t> made = files_.make(); !made) return made.fault();
  }
  std::vector<SegmentContent> read;
  std::vector<SegmentBytes> contents;
  for (const std::uint32_t number : files_.numbers()) {
    Result<SegmentContent> content = files_.read(number);
    if (!content) return std::move(content).fault();
    read.push_back(*std::move(content));
    contents.push_back({number, read.back().view()});
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
  if (free_.empty()) {
    // Without it, nothing can be written before old segments are sealed; on a full disk that has to do.
    if (const Result<std::uint32_t> made = files_.make()) free_.push_back(*made);
  }
  return ok_status();
}

void SegmentedLog::wait_until_durable() {
  // Each write that ends begins the next one.
  const auto writes = [this] {
    const std::lock_guard lock(mutex_);
    if (!writing_ && !failed_ && !batches_.empty()) write_next();
    return writing_;
  };
  while (writer_ != nullptr && writes()) writer_->wait();
}

void SegmentedLog::write_by(const MakeWriter& make) {
  std::unique_ptr<DurableWriter> writer = make([this](int error) { written(error); });
  for (;;) {
    wait_until_durable();
    const std::lock_guard lock(mutex_);
    if (writing_) continue; // another thread was quicker
    writer_.swap(writer);
    flushing_ = false;
    break;
  }
  const std::lock_guard lock(mutex_);
  flush(); // what was put meanwhile
}

Status SegmentedLog::healthy() const {
  if (!failed_.load(std::memory_order_acquire)) return ok_status();
  const std::lock_guard lock(mutex_);
  return *failure_;
}

std::uint64_t SegmentedLog::room() const {
  if (failed_) return 0;
  const std::uint64_t segment = files_.segment_bytes();
  const std::uint64_t built = building_ ? batch_bytes(batches_.back().payload.size()) : 0;
  const std::uint64_t used = in_use_ == nullptr ? segment : std::min(segment, in_use_->used + built);
  return free_.size() * segment + segment - used;
}

bool SegmentedLog::fits(std::size_t entries, std::size_t bytes) const {
  const std::size_t needed = batch_bytes(entries * kEntryBytesMax + bytes);
  if (needed > files_.segment_bytes() || failed_) return false;
  if (!free_.empty()) return true;
  if (in_use_ == nullptr) return false;
  const std::size_t built = building_ ? batch_bytes(batches_.back().payload.size()) : 0;
  return in_use_->used + built + needed <= files_.segment_bytes();
}

void SegmentedLog::begin_step(std::size_t entries, std::size_t bytes) {
  const std::size_t needed = entries * kEntryBytesMax + bytes;
  if (building_) {
    const Batch& batch = batches_.back();
    const std::size_t grown = batch.payload.size() + needed;
    const bool fits = &batch.segment == in_use_ && batch.offset + batch_bytes(grown) <= files_.segment_bytes();
    if (fits && (grown <= kBatchBytesMax || batch.payload.empty())) return;
    end_batch();
  }
  begin_batch(needed);
}

void SegmentedLog::begin_batch(std::size_t payload_bytes) {
  if (in_use_ == nullptr || in_use_->used + batch_bytes(payload_bytes) > files_.segment_bytes()) {
    ONCEKEY_CHECK(!free_.empty(), "a step that does not fit is not begun");
    auto segment = std::make_unique<Segment>();
    segment->table = std::make_shared<YoungTable>(files_.segment_bytes() / kExpectedBytesPerKey);
    segment->number = free_.front();
    free_.pop_front();
    segment->epoch = ++newest_epoch_;
    segment->first = end_.sequence + batches_.size() + 1;
    in_use_ = segment.get();
    segments_.push_back(std::move(segment));
    seal_.notify_one();
  }
  in_use_->table->begin_batch();
  ++in_use_->batches_open;
  batches_.push_back({*in_use_, in_use_->table->payload(), end_.sequence + batches_.size() + 1, in_use_->used});
  building_ = true;
}

void SegmentedLog::end_batch() {
  const Batch& batch = batches_.back();
  batch.segment.used += batch_bytes(batch.payload.size());
  building_ = false;
  if (needs_segment()) seal_.notify_one();
}

void SegmentedLog::put(const Family& family, std::string_view key, std::string_view value) {
  put_encoded(family, key, [&](std::string& payload) { payload.append(value); });
}

void SegmentedLog::erase(const Family& family, std::string_view key) {
  end_entry(family, begin_entry(family, key, true), true);
}

EntryPlace SegmentedLog::begin_entry(const Family& family, std::string_view key, bool erased) {
  codec::Writer payload(batches_.back().payload, kEntryBytesMax + key.size());
  codec::field(payload, std::uint8_t{erased});
  codec::field(payload, static_cast<std::uint8_t>(family.kind));
  codec::field(payload, static_cast<std::uint8_t>(family.bucket.width_log2));
  codec::field(payload, family.bucket.index);
  codec::put_bytes(payload, key);
  EntryPlace place;
  place.key = static_cast<std::uint32_t>(payload.size() - key.size());
  place.key_bytes = static_cast<std::uint32_t>(key.size());
  codec::field(payload, std::uint32_t{0}); // the length of the value, once it is known
  place.value = static_cast<std::uint32_t>(payload.size());
  return place;
}

void SegmentedLog::end_entry(const Family& family, EntryPlace place, bool erased) {
  const Batch& batch = batches_.back();
  place.value_bytes = static_cast<std::uint32_t>(batch.payload.size() - place.value);
  std::memcpy(batch.payload.data() + place.value - sizeof place.value_bytes, &place.value_bytes,
              sizeof place.value_bytes);
  batch.segment.table->change(family, place, erased);
}

std::optional<SegmentedLog::Found> SegmentedLog::find(FamilyKind kind, std::string_view key) const {
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    const YoungTable& table = *(*segment)->table;
    const YoungTable::Entry* const entry = table.find(kind, key);
    if (entry == nullptr) continue;
    return Found{entry->family, table.value_of(*entry), entry->erased, (*segment)->first + entry->batch};
  }
  return std::nullopt;
}

SegmentedLog::Young SegmentedLog::young(FamilyKind kind, std::string_view prefix) {
  // The payload of a batch being built moves when it grows.
  if (building_) end_batch();
  Young young;
  std::unordered_set<std::string_view> seen;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    const YoungTable& table = *(*segment)->table;
    for (const YoungTable::Entry& entry : table.entries()) {
      const std::string_view key = table.key_of(entry);
      if (entry.family.kind != kind || !key.starts_with(prefix) || !seen.insert(key).second) continue;
      young.entries.push_back({entry.family, key, table.value_of(entry), entry.erased});
    }
    young.tables.push_back((*segment)->table);
  }
  return young;
}

SegmentedLog::Cut SegmentedLog::cut() const {
  Cut cut{end_, {}};
  for (const auto& segment : segments_) {
    // Those of an earlier process are whole as they are; so is what has no batch on its way.
    std::uint64_t bytes = files_.segment_bytes();
    if (segment.get() == in_use_ || segment->batches_open > 0) {
      bytes = segment->used;
      for (const Batch& batch : batches_) {
        if (&batch.segment == segment.get()) bytes = std::min(bytes, batch.offset);
      }
    }
    if (bytes > 0) cut.segments.push_back({segment->number, segment->epoch, bytes});
  }
  return cut;
}

SegmentedLog::Sizes SegmentedLog::sizes() const {
  Sizes sizes;
  for (const auto& segment : segments_) {
    sizes.records += segment->table->records();
    sizes.bytes_in_memory += segment->used + segment->table->entries().size() * sizeof(YoungTable::Entry);
  }
  sizes.bytes_on_disk = (segments_.size() + free_.size()) * files_.segment_bytes();
  return sizes;
}

void SegmentedLog::when_durable(std::uint64_t sequence, Durable done) {
  batches_[sequence - batches_.front().sequence].waiting.push_back(std::move(done));
  ++waiting_;
}

void SegmentedLog::flush() {
  if (!writing_ && !flushing_ && !failed_ && !batches_.empty()) write_after(1);
}

void SegmentedLog::write_after(int turns) {
  flushing_ = writer_->after_turn([this, turns] {
    const std::lock_guard lock(mutex_);
    flushing_ = false;
    if (writing_ || failed_ || batches_.empty()) return;
    const bool gathered =
        turns == 1 || batches_.size() > 1 || std::chrono::steady_clock::now() - written_at_ >= kGatherTime;
    if (gathered) {
      write_next();
    } else {
      write_after(turns - 1);
    }
  });
  if (!flushing_) write_next();
}

void SegmentedLog::write_next() {
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

void SegmentedLog::written(int error) {
  std::vector<Durable> waiting;
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (error != 0) {
      failure_ = unavailable(fmt::format(
          "the store could not make a write durable and stops, since trying again might lose it silently: {}",
          std::strerror(error)));
      failed_.store(true, std::memory_order_release);
    } else {
      Batch& batch = batches_.front();
      end_ = batch.segment.last = written_end_;
      --batch.segment.batches_open;
      waiting = std::move(batch.waiting);
      waiting_ -= waiting.size();
      if (&batch.segment != in_use_ && batch.segment.batches_open == 0) seal_.notify_one();
      batches_.pop_front();
      syncs_.fetch_add(1, std::memory_order_relaxed);
      written_at_ = std::chrono::steady_clock::now();
      if (!batches_.empty() && !batches_.front().payload.empty()) write_after(kGatherTurns);
    }
  }
  if (error != 0) return options_.on_fatal(failure_->message);
  for (const Durable& done : waiting) done();
}

// The oldest segment, once it gets no more batches and all it has are durable.
SegmentedLog::Segment* SegmentedLog::to_seal() const {
  if (segments_.empty()) return nullptr;
  Segment* const oldest = segments_.front().get();
  return oldest != in_use_ && oldest->batches_open == 0 ? oldest : nullptr;
}

// In time: making one takes a while. A store that is hardly used needs no second one.
bool SegmentedLog::needs_segment() const {
  if (segments_.size() + free_.size() >= options_.segments_max) return false;
  return in_use_ == nullptr ? free_.empty() : in_use_->used >= files_.segment_bytes() / 4 && free_.size() < 2;
}

void SegmentedLog::seal_in_background() {
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
      if (made)
        free_.push_back(*made);
      else
        done = made.fault();
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
        sealings_.fetch_add(1, std::memory_order_release);
      }
    }
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
