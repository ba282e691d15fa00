// SegmentedLog: keys and values in families, of which the young ones are in a log of our own and in memory, and the old
// ones in a cold store. A change waits for one write of the log and for nothing else.
//
// Changes are appended to the batch being built while the batch before it is written; when that one is durable, this
// one goes. Batches fill segments. A full segment is sealed: a thread hands what its batches have changed to the cold
// store, one entry a key, and the segment is used again once the cold store has made it durable.
//
// Reading. The young tables are asked first, newest first; what none of them has is as the cold store has it. An entry
// is visible before it is durable: an answer that follows from it waits for its batch (`durable`, when_durable).
//
// Threads. Everything but the constructor's callbacks needs lock() to be held, unless it says otherwise.
//
// An error of a write of the log ends the journal: nothing after it is answered, and `on_fatal` hears why. Failures of
// sealing are said to `on_sealing` and tried again; meanwhile segments run out, and room() shrinks.
#pragma once

#include "store/journal/durable_writer.h"
#include "store/journal/log_format.h"
#include "store/journal/segment_files.h"
#include "store/journal/young_table.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace oncekey {

// Of an entry beside its key and value: what is done, the family, and two lengths.
inline constexpr std::size_t kEntryBytesMax = 1 + 1 + 1 + 8 + 4 + 4;

// An entry of a batch. The views point into the payload.
struct LogEntry {
  Family family;
  std::string_view key;
  std::string_view value;
  bool erased = false;
};
// In the order of the payload. A fault if that does not have the shape of entries.
Status each_log_entry(std::string_view payload, const std::function<void(const LogEntry& entry)>& visit);

// Where sealed segments go.
class ColdStore {
 public:
  virtual ~ColdStore() = default;
  // Makes all changes of the table durable, and the end of the log that they reach, in one step. A repetition after a
  // crash is harmless. Called by one thread at a time.
  virtual Status take(const YoungTable& changes, const LogEnd& sealed) = 0;
};

struct SegmentedLogOptions {
  std::uint64_t salt = 0;
  LogEnd sealed; // what the cold store has
  std::size_t segments_max = 8;
  // Makes the writer; the thread's where there is no loop.
  std::function<std::unique_ptr<DurableWriter>(DurableWriter::Written written)> make_writer = make_thread_writer;
  std::function<void(std::string reason)> on_fatal;
  std::function<void(const Status& sealed)> on_sealing = [](const Status&) {};
};

class SegmentedLog {
 public:
  // Reads back what the log has. The files and the cold store outlive the journal.
  static Result<std::unique_ptr<SegmentedLog>> open(SegmentFiles& files, ColdStore& cold, SegmentedLogOptions options);
  // Segments are sealed in the background from now on.
  void start_sealing();
  // Writes what was put. What is not sealed is read back by the next open.
  ~SegmentedLog();
  SegmentedLog(const SegmentedLog&) = delete;
  SegmentedLog& operator=(const SegmentedLog&) = delete;

  [[nodiscard]] std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }

  // Without lock(): a fault once the log has failed.
  Status healthy() const;
  // How many bytes of batches can be written before a segment has to be sealed; 0 once the log has failed.
  std::uint64_t room() const;
  // Whether so many bytes of keys and values can be put, in so many entries.
  bool fits(std::size_t entries, std::size_t bytes) const;

  // What follows becomes durable in one step, up to the next call: it fits() so many entries and bytes.
  void begin_step(std::size_t entries, std::size_t bytes);
  void put(const Family& family, std::string_view key, std::string_view value);
  // `encode` appends the value to the batch.
  template <class Encode>
  void put_encoded(const Family& family, std::string_view key, Encode encode) {
    std::string& payload = batches_.back().payload;
    EntryPlace place = begin_entry(family, key, false);
    encode(payload);
    end_entry(family, place, false);
  }
  void erase(const Family& family, std::string_view key);

  // A young entry. The view is valid while lock() is held.
  struct Found {
    Family family;
    std::string_view value;
    bool erased = false;
    std::uint64_t sequence = 0; // of its batch
  };
  std::optional<Found> find(FamilyKind kind, std::string_view key) const;
  // All young entries of a kind whose keys begin with the prefix, the newest of each key, in no order. The views are
  // valid as long as this is.
  struct Young {
    struct Entry {
      Family family;
      std::string_view key;
      std::string_view value;
      bool erased = false;
    };
    std::vector<Entry> entries;
    std::vector<std::shared_ptr<const YoungTable>> tables; // which hold the bytes
  };
  Young young(FamilyKind kind, std::string_view prefix);
  // Grows when a segment has gone to the cold store: what was looked up there before may be old. Without lock().
  std::uint64_t sealings() const { return sealings_.load(std::memory_order_acquire); }

  // The batch of the step under way, and the newest that is durable.
  std::uint64_t newest() const { return batches_.back().sequence; }
  std::uint64_t durable() const { return end_.sequence; }
  // `done` is called without lock() once that batch is durable, which it is not yet, in the order of the calls; never
  // if the log fails.
  using Durable = std::function<void()>;
  void when_durable(std::uint64_t sequence, Durable done);
  // How many wait.
  std::size_t waiting() const { return waiting_; }
  // What was put since the last flush goes to the disk, soon or after the write under way.
  void flush();
  // Everything that was put is durable, or the log has failed. Without lock(), and only while the writer's loop does
  // not run.
  void wait_until_durable();

  // Another writer from now on. Without lock(), and only while neither writer's loop runs.
  using MakeWriter = std::function<std::unique_ptr<DurableWriter>(DurableWriter::Written written)>;
  void write_by(const MakeWriter& make);

  // What a copy of the log as of now has to hold: so many bytes of each segment, which no later batch changes as long
  // as nothing is sealed. What follows them in the copy is zeros.
  struct Cut {
    struct Part {
      std::uint32_t number = 0;
      std::uint32_t epoch = 0;
      std::uint64_t bytes = 0;
    };
    LogEnd end;
    std::vector<Part> segments; // oldest first; the first of them may be sealed already
  };
  Cut cut() const;

  struct Sizes {
    std::uint64_t records = 0;         // young, and not erased
    std::uint64_t bytes_in_memory = 0; // of young entries
    std::uint64_t bytes_on_disk = 0;
  };
  Sizes sizes() const;
  std::uint64_t syncs() const { return syncs_.load(std::memory_order_relaxed); }

 private:
  struct Segment {
    std::uint32_t number = 0;
    std::uint32_t epoch = 0;
    std::uint64_t used = 0;       // by batches that are not being built
    std::uint64_t first = 0;      // sequence
    LogEnd last;                  // of what is durable
    std::size_t batches_open = 0; // not durable yet
    std::shared_ptr<YoungTable> table = std::make_shared<YoungTable>();
  };
  struct Batch {
    Segment& segment;
    std::string& payload; // in the segment's table
    std::uint64_t sequence;
    std::uint64_t offset;
    std::vector<Durable> waiting{};
  };

  SegmentedLog(SegmentFiles& files, ColdStore& cold, SegmentedLogOptions options);
  Status recover();
  void begin_batch(std::size_t payload_bytes);
  void end_batch();
  EntryPlace begin_entry(const Family& family, std::string_view key, bool erased);
  void end_entry(const Family& family, EntryPlace place, bool erased);
  void write_next();
  // Once the loop has had so many turns, or sooner if there is enough to write; at once where there is no loop.
  void write_after(int turns);
  void written(int error);
  void seal_in_background();
  bool needs_segment() const;
  Segment* to_seal() const;

  SegmentFiles& files_;
  ColdStore& cold_;
  const SegmentedLogOptions options_;
  mutable std::mutex mutex_;

  LogEnd end_;         // the newest durable batch
  LogEnd written_end_; // the same once the write under way is durable
  std::uint32_t newest_epoch_ = 0;
  std::deque<std::unique_ptr<Segment>> segments_; // with batches that are not sealed
  Segment* in_use_ = nullptr;                     // the last of them, or none
  std::deque<std::uint32_t> free_;
  std::deque<Batch> batches_;                          // not durable yet
  bool building_ = false;                              // the last of them
  bool writing_ = false;                               // the first of them
  bool flushing_ = false;                              // the next write comes after a turn of the loop
  std::chrono::steady_clock::time_point written_at_{}; // when the last write ended
  std::optional<Fault> failure_;
  std::atomic<bool> failed_ = false;
  std::size_t waiting_ = 0;
  std::unique_ptr<char[], decltype(&std::free)> buffer_{nullptr, &std::free};
  std::size_t buffer_bytes_ = 0;

  std::atomic<std::uint64_t> sealings_ = 0;
  std::atomic<std::uint64_t> syncs_ = 0;
  bool stopping_ = false;
  std::condition_variable seal_;
  std::thread sealer_;
  std::unique_ptr<DurableWriter> writer_;
};

} // namespace oncekey
