#include "store/common/staged_index.h"

#include <algorithm>

namespace oncekey {

bool StagedIndex::is_first(const RecordId& id, const Entry& entry) const {
  return !entry.ordered || queues_.at(order_of(id)).begin()->first == entry.place;
}

void StagedIndex::wait(const RecordId& id, const Entry& entry) {
  waiting_[entry.route].insert({{entry.due, entry.place}, id});
}

void StagedIndex::stop_waiting(const RecordId& id, const Entry& entry) {
  const auto at = waiting_.find(entry.route);
  if (at == waiting_.end()) return;
  at->second.erase({{entry.due, entry.place}, id});
  if (at->second.empty()) waiting_.erase(at);
}

StagedIndex::Change StagedIndex::note(const RecordId& id, const Record& record) {
  if (!record.staged || record.state != RecordState::in_progress) return remove(id) ? Change::removed : Change::none;
  if (!entries_.contains(id)) {
    add_at(next_place_, id, record);
    return Change::added;
  }
  postpone(id, record.lease_until);
  return Change::none;
}

void StagedIndex::postpone(const RecordId& id, Time due) {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return;
  Entry& entry = at->second;
  const bool first = is_first(id, entry);
  if (first) stop_waiting(id, entry);
  entry.due = due;
  if (first) wait(id, entry);
}

std::optional<std::uint64_t> StagedIndex::place_of(const RecordId& id) const {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return std::nullopt;
  return at->second.place;
}

void StagedIndex::add_at(std::uint64_t place, const RecordId& id, const Record& record) {
  remove(id); // an id has one place, the newest
  next_place_ = std::max(next_place_, place + 1);
  const Entry entry{place, record.lease_until, record.ordered, record.route};
  entries_[id] = entry;
  if (entry.ordered) queues_[order_of(id)].emplace(place, id);
  if (is_first(id, entry)) wait(id, entry);
}

bool StagedIndex::remove(const RecordId& id) {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return false;
  const Entry entry = at->second;
  entries_.erase(at);
  stop_waiting(id, entry);
  if (!entry.ordered) return true;
  const auto queue = queues_.find(order_of(id));
  queue->second.erase(entry.place);
  if (queue->second.empty()) {
    queues_.erase(queue);
    return true;
  }
  const RecordId& next = queue->second.begin()->second;
  wait(next, entries_.at(next));
  return true;
}

std::vector<RecordId> StagedIndex::due(const std::string& route, Time now, std::size_t limit) const {
  std::vector<RecordId> ids;
  const auto waiting = waiting_.find(route);
  if (waiting == waiting_.end()) return ids;
  for (const auto& [when, id] : waiting->second) {
    if (when.first > now || ids.size() >= limit) break;
    ids.push_back(id);
  }
  return ids;
}

} // namespace oncekey
