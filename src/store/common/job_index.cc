#include "store/common/job_index.h"

#include <algorithm>
#include <bit>

namespace oncekey {
namespace {

// Ids of one order begin with the same two bytes.
std::uint32_t hash_of(const RecordId& id) {
  const std::uint64_t hash = std::hash<RecordId>()(id);
  return static_cast<std::uint32_t>(hash ^ hash >> 32);
}
std::uint32_t order_hash_of(const RecordId& id) { return static_cast<std::uint32_t>(order_of(id)); }

} // namespace

JobIndex& JobIndex::operator=(JobIndex&& other) noexcept {
  const std::scoped_lock lock(mutex_, other.mutex_);
  next_place_ = other.next_place_;
  entries_ = std::move(other.entries_);
  by_id_ = std::move(other.by_id_);
  by_order_ = std::move(other.by_order_);
  by_expiry_ = std::move(other.by_expiry_);
  route_numbers_ = std::move(other.route_numbers_);
  routes_ = std::move(other.routes_);
  return *this;
}

void JobIndex::note(const StoredJob& job) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t number = find(job.id);
  // A job keeps its place, for the store's own entry of it; a dead letter that is tried again goes to the end.
  const bool stays = number != kNoEntry && (job.state == JobState::dead || entries_[number].state != JobState::dead);
  put(number, stays ? entries_[number].place : next_place_, job);
}

void JobIndex::forget(const RecordId& id) {
  const std::lock_guard lock(mutex_);
  if (const std::uint32_t number = find(id); number != kNoEntry) remove(number);
}

std::optional<std::uint64_t> JobIndex::place_of(const RecordId& id) const {
  const std::lock_guard lock(mutex_);
  const std::uint32_t number = find(id);
  if (number == kNoEntry) return std::nullopt;
  return entries_[number].place;
}

void JobIndex::add_at(std::uint64_t place, const StoredJob& job) {
  const std::lock_guard lock(mutex_);
  put(find(job.id), place, job); // an id has one place, the newest
}

std::vector<RecordId> JobIndex::due(const TakeRequest& request, Time now) const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordId> ids;
  const auto route = route_numbers_.find(request.route);
  if (route == route_numbers_.end()) return ids;
  routes_[route->second].due.in_order([&](const WhenDue& when, std::uint32_t number) {
    if (when.first + request.overdue > now || ids.size() >= request.limit) return false;
    ids.push_back(entries_[number].id);
    return true;
  });
  return ids;
}

void JobIndex::postpone(const RecordId& id, Time due) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t number = find(id);
  if (number == kNoEntry) return;
  entries_[number].due = due;
  schedule(number);
}

std::vector<RecordId> JobIndex::expired(Time now, std::size_t limit) const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordId> ids;
  by_expiry_.in_order([&](Time expires_at, std::uint32_t number) {
    if (expires_at > now || ids.size() >= limit) return false;
    ids.push_back(entries_[number].id);
    return true;
  });
  return ids;
}

std::vector<RecordId> JobIndex::list(const JobListRequest& request, Time now) const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordId> ids;
  const auto route = route_numbers_.find(request.route);
  if (!request.route.empty() && route == route_numbers_.end()) return ids;
  const std::size_t looked_at = std::min(request.look_max, entries_.size());
  for (std::size_t number = 0; number < looked_at; ++number) {
    const Entry& entry = entries_[number];
    const bool back = entry.state == JobState::taken && now >= entry.due; // see StoredJob::state_at
    if (request.state && (back ? JobState::waiting : entry.state) != *request.state) continue;
    if (request.route.empty() || entry.route == route->second) ids.push_back(entry.id);
  }
  return ids;
}

std::vector<JobCount> JobIndex::count() const {
  const std::lock_guard lock(mutex_);
  std::vector<JobCount> counts;
  for (const auto& [name, number] : route_numbers_) {
    for (const JobState state : {JobState::waiting, JobState::taken, JobState::dead}) {
      const std::uint64_t count = routes_[number].counts[static_cast<std::size_t>(state)];
      if (count > 0) counts.push_back({name, state, count});
    }
  }
  return counts;
}

std::size_t JobIndex::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::uint32_t JobIndex::find(const RecordId& id) const {
  return by_id_.find(hash_of(id), [&](std::uint32_t number) { return entries_[number].id == id; });
}

std::uint32_t JobIndex::first_of_order(const RecordId& id) const {
  return by_order_.find(order_hash_of(id),
                        [&](std::uint32_t number) { return order_of(entries_[number].id) == order_of(id); });
}

std::uint32_t JobIndex::route_number(const std::string& name) {
  const auto [at, added] = route_numbers_.try_emplace(name, static_cast<std::uint32_t>(routes_.size()));
  if (added) routes_.emplace_back();
  return at->second;
}

void JobIndex::put(std::uint32_t number, std::uint64_t place, const StoredJob& job) {
  if (!job.open() && job.state != JobState::dead) {
    if (number != kNoEntry) remove(number);
    return;
  }
  next_place_ = std::max(next_place_, place + 1);
  const std::uint32_t route = route_number(job.route);
  const bool queues = job.ordered && job.open();
  if (number == kNoEntry) {
    number = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back().id = job.id;
    by_id_.insert(hash_of(job.id), number);
  } else {
    const Entry& was = entries_[number];
    --count_of(was);
    if (was.queued() && (!queues || was.place != place)) leave_queue(number);
    if (was.route != route) routes_[was.route].due.erase(entries_, number);
  }
  Entry& entry = entries_[number];
  entry.place = place;
  entry.due = job.due_at;
  entry.route = route;
  entry.state = job.state;
  ++count_of(entry);
  by_expiry_.set(entries_, number, job.expires_at);
  if (queues && !entry.queued()) enter_queue(number);
  schedule(number);
}

void JobIndex::remove(std::uint32_t number) {
  const Entry& gone = entries_[number];
  --count_of(gone);
  if (gone.queued()) leave_queue(number);
  routes_[gone.route].due.erase(entries_, number);
  by_expiry_.erase(entries_, number);
  by_id_.erase(hash_of(gone.id), number);

  const auto last = static_cast<std::uint32_t>(entries_.size() - 1);
  if (number != last) {
    Entry& moved = entries_[number] = entries_[last];
    by_id_.replace(hash_of(moved.id), last, number);
    by_expiry_.renumber(entries_, number);
    routes_[moved.route].due.renumber(entries_, number);
    if (moved.queued()) {
      if (first_of_order(moved.id) == last) by_order_.replace(order_hash_of(moved.id), last, number);
      entries_[moved.previous].next = number; // alone in its queue, it is its own neighbour, at its old number
      entries_[moved.next].previous = number;
      if (moved.next == last) moved.next = moved.previous = number;
    }
  }
  entries_.pop_back();
}

void JobIndex::enter_queue(std::uint32_t number) {
  Entry& entry = entries_[number];
  const std::uint32_t first = first_of_order(entry.id);
  if (first == kNoEntry) {
    entry.next = entry.previous = number;
    by_order_.insert(order_hash_of(entry.id), number);
    return;
  }
  // By place, from the end: nearly always it is the last.
  std::uint32_t before = entries_[first].previous;
  while (before != first && entries_[before].place > entry.place) before = entries_[before].previous;
  const bool goes_first = entries_[before].place > entry.place;
  if (goes_first) before = entries_[first].previous;
  entry.previous = before;
  entry.next = entries_[before].next;
  entries_[entry.next].previous = number;
  entries_[before].next = number;
  if (!goes_first) return;
  by_order_.replace(order_hash_of(entry.id), first, number);
  schedule(first);
}

void JobIndex::leave_queue(std::uint32_t number) {
  Entry& entry = entries_[number];
  const std::uint32_t hash = order_hash_of(entry.id);
  const std::uint32_t next = std::exchange(entry.next, kNoEntry);
  const std::uint32_t previous = std::exchange(entry.previous, kNoEntry);
  if (next == number) return by_order_.erase(hash, number);
  entries_[previous].next = next;
  entries_[next].previous = previous;
  if (first_of_order(entry.id) != number) return;
  by_order_.replace(hash, number, next);
  schedule(next);
}

void JobIndex::schedule(std::uint32_t number) {
  const Entry& entry = entries_[number];
  auto& due = routes_[entry.route].due;
  if (entry.state != JobState::dead && (!entry.queued() || first_of_order(entry.id) == number)) {
    due.set(entries_, number, {entry.due, entry.place});
  } else {
    due.erase(entries_, number);
  }
}

} // namespace oncekey
