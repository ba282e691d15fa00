#include "store/common/staged_index.h"

#include <algorithm>

namespace oncekey {

bool StagedIndex::is_first(const RecordId& id, const Entry& entry) const {
  return !entry.ordered || queues_.at(order_of(id)).begin()->first == entry.place;
}

StagedIndex::Change StagedIndex::note(const RecordId& id, const Record& record) {
  if (!record.staged || record.state != RecordState::in_progress) return remove(id) ? Change::removed : Change::none;
  const auto at = entries_.find(id);
  if (at == entries_.end()) {
    add_at(next_place_, id, record);
    return Change::added;
  }
  Entry& entry = at->second;
  if (is_first(id, entry)) {
    waiting_.erase({{entry.due, entry.place}, id});
    waiting_.insert({{record.lease_until, entry.place}, id});
  }
  entry.due = record.lease_until;
  return Change::none;
}

std::optional<std::uint64_t> StagedIndex::place_of(const RecordId& id) const {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return std::nullopt;
  return at->second.place;
}

void StagedIndex::add_at(std::uint64_t place, const RecordId& id, const Record& record) {
  next_place_ = std::max(next_place_, place + 1);
  const Entry entry{place, record.lease_until, record.ordered};
  entries_[id] = entry;
  if (entry.ordered) queues_[order_of(id)].emplace(place, id);
  if (is_first(id, entry)) waiting_.insert({{entry.due, place}, id});
}

bool StagedIndex::remove(const RecordId& id) {
  const auto at = entries_.find(id);
  if (at == entries_.end()) return false;
  const Entry entry = at->second;
  entries_.erase(at);
  waiting_.erase({{entry.due, entry.place}, id});
  if (!entry.ordered) return true;
  const auto queue = queues_.find(order_of(id));
  queue->second.erase(entry.place);
  if (queue->second.empty()) {
    queues_.erase(queue);
    return true;
  }
  const auto& [place, next] = *queue->second.begin();
  waiting_.insert({{entries_.at(next).due, place}, next});
  return true;
}

std::vector<RecordId> StagedIndex::due(Time now, std::size_t limit) const {
  std::vector<RecordId> ids;
  for (const auto& [when, id] : waiting_) {
    if (when.first > now || ids.size() >= limit) break;
    ids.push_back(id);
  }
  return ids;
}

} // namespace oncekey
