#include "store/postgres/call_queue.h"

#include <algorithm>
#include <utility>

namespace oncekey::postgres {
namespace {

bool may_share(const Call& first, const Call& next) {
  if (is_claim(first)) return is_claim(next);
  const auto* const find = std::get_if<FindCall>(&first.what);
  const auto* const other = std::get_if<FindCall>(&next.what);
  return find != nullptr && other != nullptr && find->interest == other->interest;
}

} // namespace

std::optional<CallQueue::Refusal> CallQueue::submit(Call call) {
  const std::lock_guard lock(mutex_);
  if (fault_) return Refusal{std::move(call), *fault_};
  const std::size_t bytes = body_bytes(call);
  const bool full = is_claim(call) ? calls_ >= kWaitingCallsMax || bytes_ >= kWaitingBytesMax
                                   : calls_ >= kWaitingCallsHardMax || (bytes > 0 && bytes_ >= kWaitingBytesHardMax);
  if (full || closed_) {
    return Refusal{std::move(call),
                   unavailable("the store is overloaded: too many calls wait for Postgres; try again later")};
  }
  ++calls_;
  bytes_ += bytes;
  returning_.came();
  const RecordId id = id_of(call);
  Lane& lane = lanes_[id];
  lane.waiting.push_back(std::move(call));
  if (lane.under_way || lane.resting || lane.waiting.size() > 1) return std::nullopt;
  ready_.push_back(id);
  // The first one wakes a worker, which then waits no longer than until the others have gathered.
  if (takers_ > 0 && (ready_.size() == 1 || has_gathered())) filled_.notify_one();
  return std::nullopt;
}

void CallQueue::forget(const Call& call) {
  --calls_;
  bytes_ -= body_bytes(call);
}

void CallQueue::wake_rested(Deadline now) {
  while (!resting_.empty() && resting_.begin()->first <= now) {
    const RecordId id = resting_.begin()->second;
    resting_.erase(resting_.begin());
    const auto lane = lanes_.find(id);
    if (lane == lanes_.end() || !lane->second.resting) continue;
    lane->second.resting = false;
    ready_.push_back(id);
  }
}

Group CallQueue::take_group(const RecordId& id, Lane& lane) {
  std::size_t count = 1;
  while (count < lane.waiting.size() && may_share(lane.waiting.front(), lane.waiting[count])) ++count;
  Group group{id, {}};
  const auto end = lane.waiting.begin() + static_cast<std::ptrdiff_t>(count);
  group.calls.assign(std::make_move_iterator(lane.waiting.begin()), std::make_move_iterator(end));
  lane.waiting.erase(lane.waiting.begin(), end);
  for (const Call& call : group.calls) forget(call);
  lane.under_way = true;
  return group;
}

std::size_t CallQueue::share() const {
  const std::size_t ids = ready_.size() + ids_under_way_ + returning_.missing();
  const auto workers = static_cast<std::size_t>(std::max(1, workers_));
  return std::clamp((ids + workers - 1) / workers, kBatchIdsToShare, kBatchIdsMax);
}

Batch CallQueue::take(Deadline until) {
  Batch batch;
  std::unique_lock lock(mutex_);
  for (;;) {
    const Deadline now = std::chrono::steady_clock::now();
    wake_rested(now);
    const bool gathers = returning_.missing(now) > 0 && !has_gathered();
    const std::size_t most = share();
    std::size_t bytes = 0;
    while (!gathers && !ready_.empty() && batch.size() < most && bytes < kBatchBodyBytesMax) {
      const RecordId id = ready_.front();
      ready_.pop_front();
      const auto lane = lanes_.find(id);
      if (lane == lanes_.end() || lane->second.under_way || lane->second.waiting.empty()) continue;
      batch.push_back(take_group(id, lane->second));
      bytes += body_bytes(batch.back().calls.front());
    }
    ids_under_way_ += batch.size();
    if (!batch.empty() && !ready_.empty() && takers_ > 0) filled_.notify_one();
    if (!batch.empty() || closed_ || now >= until) return batch;
    // A copy: others may take the first of the resting out while this one waits.
    Deadline wake_at = resting_.empty() ? until : std::min(until, resting_.begin()->first);
    if (gathers && !ready_.empty()) wake_at = std::min(wake_at, returning_.until());
    ++takers_;
    filled_.wait_until(lock, wake_at);
    --takers_;
  }
}

void CallQueue::give_back(Batch batch, Deadline::duration took) {
  const std::lock_guard lock(mutex_);
  std::size_t ready = 0;
  std::size_t answered = 0;
  ids_under_way_ -= batch.size();
  for (Group& group : batch) {
    if (group.calls.empty()) ++answered;
    const auto at = lanes_.find(group.id);
    Lane& lane = at->second;
    lane.under_way = false;
    for (const Call& call : group.calls) {
      ++calls_;
      bytes_ += body_bytes(call);
    }
    lane.waiting.insert(lane.waiting.begin(), std::make_move_iterator(group.calls.begin()),
                        std::make_move_iterator(group.calls.end()));
    if (lane.waiting.empty()) {
      lanes_.erase(at);
    } else if (group.rest > Millis{0}) {
      lane.resting = true;
      resting_.emplace(deadline_in(group.rest), group.id);
      ++ready; // somebody has to wake when it has rested
    } else {
      ready_.push_back(group.id);
      ++ready;
    }
  }
  returning_.answered(answered, took, std::chrono::steady_clock::now());
  if (takers_ > 0 && ready > 0) filled_.notify_one();
}

void CallQueue::served_by(int workers) {
  const std::lock_guard lock(mutex_);
  workers_ = workers;
}

template <class Condition>
std::vector<Call> CallQueue::take_out(Condition condition) {
  std::vector<Call> out;
  for (auto at = lanes_.begin(); at != lanes_.end();) {
    Lane& lane = at->second;
    const auto gone = std::stable_partition(lane.waiting.begin(), lane.waiting.end(),
                                            [&](const Call& call) { return !condition(call); });
    for (auto call = gone; call != lane.waiting.end(); ++call) {
      forget(*call);
      out.push_back(std::move(*call));
    }
    lane.waiting.erase(gone, lane.waiting.end());
    at = lane.waiting.empty() && !lane.under_way ? lanes_.erase(at) : std::next(at);
  }
  return out;
}

std::vector<Call> CallQueue::take_overdue(Deadline now) {
  const std::lock_guard lock(mutex_);
  if (calls_ == 0) return {};
  return take_out([&](const Call& call) { return call.send_by <= now; });
}

std::vector<Call> CallQueue::refuse_all(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
  return take_out([](const Call&) { return true; });
}

void CallQueue::accept_again() {
  const std::lock_guard lock(mutex_);
  fault_.reset();
}

std::optional<Fault> CallQueue::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

void CallQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  filled_.notify_all();
}

} // namespace oncekey::postgres
