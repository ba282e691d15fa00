#include "store/memory/memory_store.h"

#include "base/crypto.h"
#include "core/transitions.h"
#include "store/common/fences.h"
#include "store/common/listing.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

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

std::uint64_t response_bytes(const Record& record) {
  return record.response ? record.response->headers.lines().size() + record.response->body.size() : 0;
}

// For the steps, which read no body.
std::optional<Record> copy_for_step(const Record* record) {
  return record == nullptr ? std::nullopt : std::optional(as_listed(*record));
}

bool is_gone(const Record* record, Time now) { return record == nullptr || record->expired(now); }

Fault full() {
  return unavailable("the memory store is full; wait for records to expire, or use a store on disk (rocksdb:PATH)");
}

} // namespace

MemoryStore::MemoryStore(MemoryOptions options)
    : options_(std::move(options)),
      use_{options_.records_max, options_.response_bytes_max},
      jobs_(use_, next_fence_, [this] { return options_.now(); }) {
  if (!options_.now) options_.now = steady_time();
  next_fence_ = least_fence(options_.now());
  fill_random(secret_);
}

void MemoryStore::drop_ended(Shard& shard, Time now) {
  std::erase_if(shard.buckets, [&](const auto& entry) {
    if (entry.first.end() > now) return false;
    use_.records -= entry.second.records.size();
    use_.bytes -= entry.second.response_bytes;
    return true;
  });
}

void MemoryStore::sweep() {
  const std::int64_t now = options_.now().time_since_epoch().count();
  std::int64_t due = next_sweep_;
  if (now < due || !next_sweep_.compare_exchange_strong(due, now + kSweepEvery.count())) return;
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    drop_ended(shard, options_.now());
  }
}

const Record* MemoryStore::look_up(const Shard& shard, const RecordId& id) const {
  for (const auto& [bucket, content] : shard.buckets) {
    const auto at = content.records.find(id);
    if (at != content.records.end()) return &at->second;
  }
  return nullptr;
}

void MemoryStore::take_out(Shard& shard, const RecordId& id) {
  for (auto& [bucket, content] : shard.buckets) {
    const auto at = content.records.find(id);
    if (at == content.records.end()) continue;
    content.response_bytes -= response_bytes(at->second);
    use_.bytes -= response_bytes(at->second);
    --use_.records;
    content.records.erase(at);
    return;
  }
}

void MemoryStore::erase(Shard& shard, const RecordId& id) {
  take_out(shard, id);
  ++writes_;
  shard.unsettled.erase(id);
}

void MemoryStore::write(Shard& shard, const RecordId& id, Record record) {
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
  content.records.emplace(id, std::move(record));
}

void MemoryStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  sweep();
  Result<ClaimAnswer> answer = full();
  {
    Shard& shard = shard_of(request.id);
    const std::lock_guard lock(shard.mutex);
    const Time now = options_.now();
    const Record* const found = look_up(shard, request.id);
    if (found != nullptr || use_.records < use_.records_max) {
      const std::optional<Record> known = copy_for_step(found);
      const OwnerWorksHere owner = works_here(owners_here_, request.id, known, now);
      if (claim_changes(known, request, now, owner)) {
        ClaimStep step = claim_step(known, request, next_fence_.fetch_add(1), now, owner);
        write(shard, request.id, *std::move(step.write));
        answer = std::move(step.answer);
      } else {
        answer = ClaimAnswer(Found{*found, now});
      }
    }
  }
  done(std::move(answer));
}

void MemoryStore::find(const RecordId& id, Interest /*interest*/, Done<std::optional<Found>> done) {
  std::optional<Found> answer;
  {
    Shard& shard = shard_of(id);
    const std::lock_guard lock(shard.mutex);
    const Time now = options_.now();
    const Record* const found = look_up(shard, id);
    if (!is_gone(found, now)) answer = Found{*found, now};
  }
  done(std::move(answer));
}

template <class Step>
void MemoryStore::by_fence(const Ownership& owner, Done<FenceAnswer> done, Step step) {
  FenceAnswer answer;
  {
    Shard& shard = shard_of(owner.id);
    const std::lock_guard lock(shard.mutex);
    const Time now = options_.now();
    FenceStep result = step(copy_for_step(look_up(shard, owner.id)), now);
    if (result.erase) erase(shard, owner.id);
    if (result.write) write(shard, owner.id, *std::move(result.write));
    answer = result.answer;
  }
  done(answer);
}

void MemoryStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  by_fence(owner, std::move(done),
           [&](const std::optional<Record>& found, Time now) { return renew_step(found, owner.fence, lease, now); });
}

void MemoryStore::complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
  if (!use_.has_room_for(response.body.size())) return done(full());
  by_fence(owner, std::move(done), [&](const std::optional<Record>& found, Time now) {
    return complete_step(found, owner.fence, std::move(response), now);
  });
}

void MemoryStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  by_fence(owner, std::move(done),
           [&](const std::optional<Record>& found, Time now) { return release_step(found, owner.fence, now); });
}

void MemoryStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  if (by == Holder::finder && owners_here_ && owners_here_(owner.id) == owner.fence) return done(FenceAnswer::lost);
  by_fence(owner, std::move(done),
           [&](const std::optional<Record>& found, Time now) { return hold_step(found, owner.fence, by, now); });
}

void MemoryStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                          Done<OperatorAnswer> done) {
  OperatorAnswer answer;
  {
    Shard& shard = shard_of(id);
    const std::lock_guard lock(shard.mutex);
    OperatorStep step = operate_step(copy_for_step(look_up(shard, id)), action, std::move(response), options_.now());
    if (step.erase) erase(shard, id);
    if (step.write) write(shard, id, *std::move(step.write));
    answer = step.answer;
  }
  done(answer);
}

void MemoryStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  std::vector<Listed> listed;
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    const Time now = options_.now();
    for (const auto& [bucket, content] : shard.buckets) {
      for (const auto& [id, record] : content.records) {
        if (listed.size() >= request.limit) break;
        if (!is_listed(request, id, record, now)) continue;
        listed.push_back({id, as_listed(record)});
      }
    }
  }
  done(std::move(listed));
}

void MemoryStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  NewestLines newest(request.limit);
  std::uint64_t looked = 0;
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    const Time now = options_.now();
    const auto look_at = [&](const RecordId& id, const Record& record) {
      ++looked;
      const BrowsePlace place{record.first_received, id};
      if (!comes_after(request.after, place) || !is_browsed(request, record, now)) return;
      newest.offer(place, [&] { return Listed{id, as_listed(record)}; });
    };
    if (only_waiting(request.shown)) {
      for (const RecordId& id : shard.unsettled) {
        if (const Record* const record = look_up(shard, id)) look_at(id, *record);
      }
      continue;
    }
    for (const auto& [bucket, content] : shard.buckets) {
      for (const auto& [id, record] : content.records) look_at(id, record);
    }
  }
  done(std::move(newest).page(looked, true));
}

void MemoryStore::count_waiting(Done<WaitingKeys> done) {
  WaitingKeys counted;
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    const Time now = options_.now();
    std::erase_if(shard.unsettled, [&](const RecordId& id) {
      const Record* const record = look_up(shard, id);
      if (is_gone(record, now)) return true;
      if (record->state == RecordState::indeterminate) ++counted.indeterminate;
      if (record->left_abandoned(now)) ++counted.abandoned;
      return false;
    });
  }
  done(counted);
}

StoreStats MemoryStore::stats() const {
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

} // namespace oncekey
