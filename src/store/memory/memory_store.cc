#include "store/memory/memory_store.h"

#include "base/crypto.h"
#include "core/bucket.h"
#include "core/job_transitions.h"
#include "core/transitions.h"
#include "store/common/fences.h"
#include "store/common/job_index.h"
#include "store/common/listing.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace oncekey {
namespace {

// Claims look for ended buckets at most this often: the narrowest bucket is this wide.
constexpr Millis kSweepEvery{std::int64_t{1} << kNarrowestBucketLog2};

// The wall clock's time at the start, counted on by a clock that is never set.
std::function<Time()> steady_time() {
  const auto start = std::chrono::steady_clock::now();
  const Time start_time = std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
  return [start, start_time] {
    return start_time + std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - start);
  };
}

std::uint64_t response_bytes(const Record& record) { return record.response ? record.response->bytes() : 0; }

// For the steps, which read no body.
std::optional<Record> copy_for_step(const Record* record) {
  return record == nullptr ? std::nullopt : std::optional(as_listed(*record));
}

bool is_gone(const Record* record, Time now) { return record == nullptr || record->expired(now); }

Fault full(std::string_view what) {
  return unavailable(
      fmt::format("the memory store is full; wait for {} to expire, or use a store on disk (journal:PATH)", what));
}

// What the records and the jobs of a store hold together, and the limits on it.
struct MemoryUse {
  const std::uint64_t records_max;
  const std::uint64_t bytes_max; // of headers and bodies
  std::atomic<std::uint64_t> records = 0;
  std::atomic<std::uint64_t> bytes = 0;

  bool has_room_for(std::uint64_t more_bytes) const { return bytes + more_bytes <= bytes_max; }
};

// The jobs of a MemoryStore. One lock for all: deliveries are few beside claims.
class MemoryJobs final : public JobStore {
 public:
  // Both outlive this. `next_fence` is the store's counter.
  MemoryJobs(MemoryUse& use, std::atomic<std::uint64_t>& next_fence, std::function<Time()> now)
      : use_(use), next_fence_(next_fence), now_(std::move(now)) {}

  void stage(StageRequest request, Done<StageAnswer> done) override {
    with_lock(done, [&](Time now) -> Result<StageAnswer> {
      const auto [at, added] = jobs_.try_emplace(request.id);
      auto& [job, message] = at->second;
      if (!added) return StageAnswer{false, job.fingerprint};
      const std::uint64_t bytes = request.message.bytes();
      if (use_.records >= use_.records_max || !use_.has_room_for(bytes)) {
        jobs_.erase(at);
        return full("jobs");
      }
      ++use_.records;
      use_.bytes += bytes;
      job = *stage_step(std::nullopt, request, now);
      message = std::move(request.message);
      by_expiry_.emplace(job.expires_at, job.id);
      index_.note(job);
      return StageAnswer{true, job.fingerprint};
    });
  }

  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override {
    with_lock(done, [&](Time now) {
      std::vector<TakenJob> taken;
      for (const RecordId& id : index_.due(request, now)) {
        std::optional<StoredJob> job = take_job_step(look_up(id), request, next_fence_.fetch_add(1), now);
        if (!job) continue;
        write(*job);
        taken.push_back({*std::move(job), jobs_.at(id).message, now});
      }
      return taken;
    });
  }

  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override {
    with_lock(done, [&](Time now) {
      auto job = end_attempt_step(look_up(owner.id), owner.fence, std::move(end), now);
      if (!job) return FenceAnswer::lost;
      write(*std::move(job));
      return FenceAnswer::done;
    });
  }

  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override {
    with_lock(done, [&](Time now) -> std::optional<FoundJob> {
      const auto at = jobs_.find(id);
      if (at == jobs_.end()) return std::nullopt;
      const auto& [job, message] = at->second;
      return FoundJob{job, job.message_kept ? std::optional(message) : std::nullopt, now};
    });
  }

  void operate(const RecordId& id, const std::string& /*route*/, JobAction action, std::optional<JobSeen> seen,
               Done<JobAnswer> done) override {
    with_lock(done, [&](Time now) {
      const JobStep step = operate_job_step(look_up(id), action, seen, now);
      if (step.write) write(*step.write);
      return step.answer;
    });
  }

  void list(const JobListRequest& request, Done<JobPage> done) override {
    with_lock(done, [&](Time now) {
      JobPage page;
      std::size_t looked = 0;
      for (const auto& [id, kept] : jobs_) {
        page.whole = looked++ < request.look_max;
        if (!page.whole) break;
        if (!is_listed(request, kept.job, now)) continue;
        page.whole = page.jobs.size() < request.limit;
        if (!page.whole) break;
        page.jobs.push_back(kept.job);
      }
      return page;
    });
  }

  void count(Done<std::vector<JobCount>> done) override {
    with_lock(done, [&](Time /*now*/) { return index_.count(); });
  }

 private:
  struct Kept {
    StoredJob job;
    Message message; // empty once it was deleted
  };

  // What `step` answers, found with the lock; the callback is called without it.
  template <class T, class Step>
  void with_lock(const Done<T>& done, Step step) {
    std::unique_lock lock(mutex_);
    const Time now = now_();
    erase_expired(now);
    Result<T> answer = step(now);
    lock.unlock();
    done(std::move(answer));
  }

  // All of these need the lock.
  std::optional<StoredJob> look_up(const RecordId& id) const {
    const auto at = jobs_.find(id);
    return at == jobs_.end() ? std::nullopt : std::optional(at->second.job);
  }

  void write(StoredJob job) {
    Kept& kept = jobs_[job.id];
    if (!job.message_kept) {
      use_.bytes -= kept.message.bytes();
      kept.message = Message{};
    }
    index_.note(job);
    kept.job = std::move(job);
  }

  void erase_expired(Time now) {
    while (!by_expiry_.empty() && by_expiry_.top().first <= now) {
      const RecordId id = by_expiry_.top().second;
      by_expiry_.pop();
      const auto at = jobs_.find(id);
      if (const StoredJob& job = at->second.job; !job.expired(now)) {
        by_expiry_.emplace(job.expires_at, id); // it has been put off since
        continue;
      }
      use_.bytes -= at->second.message.bytes();
      --use_.records;
      index_.forget(id);
      jobs_.erase(at);
    }
  }

  MemoryUse& use_;
  std::atomic<std::uint64_t>& next_fence_;
  const std::function<Time()> now_;
  std::mutex mutex_;
  std::unordered_map<RecordId, Kept> jobs_;
  using Expiry = std::pair<Time, RecordId>;
  std::priority_queue<Expiry, std::vector<Expiry>, std::greater<>> by_expiry_; // each job once; never too late
  JobIndex index_;
};

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(MemoryOptions options)
      : options_(std::move(options)),
        use_{options_.records_max, options_.response_bytes_max},
        jobs_(use_, next_fence_, [this] { return options_.now(); }) {
    if (!options_.now) options_.now = steady_time();
    next_fence_ = least_fence(options_.now());
    fill_random(secret_);
  }

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    sweep();
    std::optional<ClaimAnswer> answer;
    {
      Shard& shard = shard_of(request.id);
      const std::lock_guard lock(shard.mutex);
      const Time now = options_.now();
      const std::shared_ptr<const Record> found = look_up(shard, request.id);
      if (!is_gone(found.get(), now) && found->state == RecordState::completed) {
        answer = Found{found, now}; // no claim changes it
      } else if (found || use_.records < use_.records_max) {
        const std::optional<Record> known = copy_for_step(found.get());
        const OwnerWorksHere owner = works_here(owners_here_, request.id, known, now);
        if (claim_changes(known, request, now, owner)) {
          ClaimStep step = claim_step(known, request, next_fence_.fetch_add(1), now, owner);
          write(shard, request.id, *std::move(step.write));
          answer = std::move(step.answer);
        } else {
          answer = Found{found, now};
        }
      }
    }
    done(answer ? Result(*std::move(answer)) : full("records"));
  }

  void find(const RecordId& id, Interest /*interest*/, Done<std::optional<Found>> done) override {
    std::optional<Found> answer;
    {
      Shard& shard = shard_of(id);
      const std::lock_guard lock(shard.mutex);
      const Time now = options_.now();
      const std::shared_ptr<const Record> found = look_up(shard, id);
      if (!is_gone(found.get(), now)) answer = Found{found, now};
    }
    done(std::move(answer));
  }

  void by_fence(FenceCall call) override {
    if (is_kept_from(call, owners_here_)) return call.done(FenceAnswer::lost);
    if (call.verb == FenceVerb::complete && !use_.has_room_for(call.response.bytes()))
      return call.done(full("records"));
    change(call.owner.id, call.done,
           [&](const std::optional<Record>& found, Time now) { return fence_step(found, call, now); });
  }
  JobStore& jobs() override { return jobs_; }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override {
    change(id, done, [&](const std::optional<Record>& found, Time now) {
      return operate_step(found, action, std::move(response), now);
    });
  }

  void list(const ListRequest& request, Done<std::vector<Listed>> done) override {
    std::vector<Listed> listed;
    each_record([&](const RecordId& id, const Record& record, Time now) {
      if (listed.size() < request.limit && is_listed(request, id, record, now))
        listed.push_back({id, as_listed(record)});
    });
    done(std::move(listed));
  }

  // Looks at every record, or at all that are not settled: there are kMemoryRecordsMax at most.
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override {
    NewestLines newest(request.limit);
    std::uint64_t looked = 0;
    const auto look_at = [&](const RecordId& id, const Record& record, Time now) {
      ++looked;
      const BrowsePlace place{record.first_received, id};
      if (!comes_after(request.after, place) || !is_browsed(request, record, now)) return;
      newest.offer(place, [&] { return Listed{id, as_listed(record)}; });
    };
    if (only_waiting(request.shown)) {
      each_unsettled(look_at);
    } else {
      each_record(look_at);
    }
    done(std::move(newest).page(looked, true));
  }

  void count_waiting(Done<WaitingKeys> done) override {
    WaitingKeys counted;
    each_unsettled([&](const RecordId& /*id*/, const Record& record, Time now) {
      if (record.state == RecordState::indeterminate) ++counted.indeterminate;
      if (record.left_abandoned(now)) ++counted.abandoned;
    });
    done(counted);
  }

  void owners_here(OwnersHere owners) override { owners_here_ = std::move(owners); }
  Time now() const override { return options_.now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return secret_; }
  Durability durability() const override { return Durability::none; }
  Status healthy() const override { return ok_status(); }
  StoreStats stats() const override {
    StoreStats stats;
    std::set<BucketId> buckets;
    for (const Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      for (const auto& [bucket, content] : shard.buckets) buckets.insert(bucket);
    }
    stats.buckets = buckets.size();
    stats.records_estimate = use_.records;
    stats.bytes_in_memory = use_.records * sizeof(Record) + use_.bytes;
    stats.writes = writes_;
    return stats;
  }

 private:
  struct BucketContent {
    std::unordered_map<RecordId, std::shared_ptr<const Record>> records; // replays share them
    std::uint64_t response_bytes = 0;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::map<BucketId, BucketContent> buckets;
    std::unordered_set<RecordId> unsettled; // keys in progress or indeterminate; may hold some that have expired
  };
  static constexpr std::size_t kShards = 64;

  Shard& shard_of(const RecordId& id) { return shards_[id.bytes[31] % kShards]; }

  void sweep() {
    const std::int64_t now = options_.now().time_since_epoch().count();
    std::int64_t due = next_sweep_;
    if (now < due || !next_sweep_.compare_exchange_strong(due, now + kSweepEvery.count())) return;
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      drop_ended(shard, options_.now());
    }
  }

  template <class Visit>
  void each_record(Visit visit) {
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      const Time now = options_.now();
      for (const auto& [bucket, content] : shard.buckets) {
        for (const auto& [id, record] : content.records) visit(id, *record, now);
      }
    }
  }

  // Forgets those that are gone.
  template <class Visit>
  void each_unsettled(Visit visit) {
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      const Time now = options_.now();
      std::erase_if(shard.unsettled, [&](const RecordId& id) {
        const std::shared_ptr<const Record> record = look_up(shard, id);
        if (is_gone(record.get(), now)) return true;
        visit(id, *record, now);
        return false;
      });
    }
  }

  // Writes what `step` makes of the record.
  template <class T, class Step>
  void change(const RecordId& id, const Done<T>& done, Step step) {
    Shard& shard = shard_of(id);
    std::unique_lock lock(shard.mutex);
    auto made = step(copy_for_step(look_up(shard, id).get()), options_.now());
    if (made.erase) erase(shard, id);
    if (made.write) write(shard, id, *std::move(made.write));
    lock.unlock();
    done(made.answer);
  }

  // All of these need the shard's lock.
  void drop_ended(Shard& shard, Time now) {
    std::erase_if(shard.buckets, [&](const auto& entry) {
      if (entry.first.end() > now) return false;
      use_.records -= entry.second.records.size();
      use_.bytes -= entry.second.response_bytes;
      return true;
    });
  }

  std::shared_ptr<const Record> look_up(const Shard& shard, const RecordId& id) const {
    for (const auto& [bucket, content] : shard.buckets) {
      const auto at = content.records.find(id);
      if (at != content.records.end()) return at->second;
    }
    return nullptr;
  }

  void take_out(Shard& shard, const RecordId& id) {
    for (auto& [bucket, content] : shard.buckets) {
      const auto at = content.records.find(id);
      if (at == content.records.end()) continue;
      content.response_bytes -= response_bytes(*at->second);
      use_.bytes -= response_bytes(*at->second);
      --use_.records;
      content.records.erase(at);
      return;
    }
  }

  void erase(Shard& shard, const RecordId& id) {
    take_out(shard, id);
    ++writes_;
    shard.unsettled.erase(id);
  }

  void write(Shard& shard, const RecordId& id, Record record) {
    // An id lives in one bucket: whatever copy there was goes first.
    take_out(shard, id);
    BucketContent& content = shard.buckets[bucket_of(record.expires_at, record.expires_at - record.first_received)];
    content.response_bytes += response_bytes(record);
    use_.bytes += response_bytes(record);
    ++use_.records;
    ++writes_;
    if (record.state == RecordState::completed) {
      shard.unsettled.erase(id);
    } else {
      shard.unsettled.insert(id);
    }
    content.records.emplace(id, std::make_shared<const Record>(std::move(record)));
  }

  MemoryOptions options_;
  OwnersHere owners_here_;
  std::atomic<std::uint64_t> next_fence_;
  std::array<std::uint8_t, 32> secret_;
  std::array<Shard, kShards> shards_;
  MemoryUse use_;
  MemoryJobs jobs_;
  std::atomic<std::int64_t> next_sweep_ = 0; // on the store's clock
  std::atomic<std::uint64_t> writes_ = 0;
};

} // namespace

std::unique_ptr<Store> make_memory_store(MemoryOptions options) {
  return std::make_unique<MemoryStore>(std::move(options));
}

} // namespace oncekey
