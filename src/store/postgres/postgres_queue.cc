#include "store/postgres/postgres_queue.h"

#include <algorithm>
#include <utility>

namespace oncekey::postgres {

std::optional<Fault> PostgresQueue::submit(const RecordId& id, AnyCall& what, Deadline send_by, Deadline answer_by) {
  const std::lock_guard lock(mutex_);
  if (fault_) return fault_;
  std::optional<QueueRoom::Place> place = room_.admit(kind_of(what), body_bytes(what));
  if (!place || closed_) return overloaded();
  auto call = std::make_unique<PostgresCall>();
  call->what = std::move(what);
  call->id = id;
  call->send_by = send_by;
  call->answer_by = answer_by;
  call->place = *std::move(place);
  const std::size_t before = calls_.ready();
  calls_.add(std::move(call));
  // The first one wakes a thread, which then waits no longer than until the others have gathered.
  const std::size_t ready = calls_.ready();
  const bool wakes = ready == 1 || calls_.missing() == 0 || ready >= share();
  if (takers_ > 0 && ready > before && wakes) filled_.notify_one();
  return std::nullopt;
}

std::size_t PostgresQueue::share() const {
  const std::size_t ids = calls_.ready() + calls_.under_way() + calls_.missing();
  const auto threads = static_cast<std::size_t>(std::max(1, threads_));
  return std::clamp((ids + threads - 1) / threads, kBatchIdsToShare, kBatchIdsMax);
}

CallBatch PostgresQueue::take(Deadline until) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const Deadline now = std::chrono::steady_clock::now();
    const std::size_t most = share();
    const std::optional<Deadline> departure = calls_.departure(now, most);
    if (departure && *departure <= now) {
      CallBatch batch = calls_.take(most, kBatchBodyBytesMax);
      if (!batch.empty() && calls_.ready() > 0 && takers_ > 0) filled_.notify_one();
      if (!batch.empty()) return batch;
      continue; // its ids had no calls any more
    }
    if (closed_ || now >= until) return {};
    ++takers_;
    filled_.wait_until(lock, departure ? std::min(until, *departure) : until);
    --takers_;
  }
}

void PostgresQueue::give_back(CallBatch batch, Deadline::duration took) {
  const std::lock_guard lock(mutex_);
  calls_.give_back(std::move(batch), took, std::chrono::steady_clock::now());
  // Also for ids that rest: a thread has to wake when they have rested.
  if (takers_ > 0 && calls_.has_ids()) filled_.notify_one();
}

void PostgresQueue::served_by(int threads) {
  const std::lock_guard lock(mutex_);
  threads_ = threads;
}

std::vector<PostgresCallPtr> PostgresQueue::take_overdue(Deadline now) {
  const std::lock_guard lock(mutex_);
  return calls_.take_out([&](const PostgresCall& call) { return call.send_by <= now; });
}

std::vector<PostgresCallPtr> PostgresQueue::refuse_all(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
  return calls_.take_out([](const PostgresCall&) { return true; });
}

void PostgresQueue::accept_again() {
  const std::lock_guard lock(mutex_);
  fault_.reset();
}

std::optional<Fault> PostgresQueue::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

void PostgresQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  filled_.notify_all();
}

} // namespace oncekey::postgres
