// CallQueue: the calls that wait for a server, and the batches they leave in.
//
// Of one id at most one call is under way at a time, in the order they came. What waits behind it leaves together where
// one answer serves all: a storm of retries of one key costs one claim for each round trip, not one for each retry.
//
// While a batch is under way the next calls gather, so that the busier a server is the larger its batches become.
// BatchDelay says when the next batch is worth waiting for.
#pragma once

#include "store/common/calls.h"
#include "store/common/deadline.h"

#include <oncekey/time.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <unordered_map>

namespace oncekey {

// BatchDelay: how long the next batch waits for more calls.
//
// A caller that was just answered often has its next call in a moment: after a claim the completion, after a completion
// the next claim. A batch costs the server a round trip and a sync, however few calls it carries. So the next batch
// waits for those callers, for at most half of the time that the batch before took: less than one more batch would
// cost. If fewer than half of them come, batching is switched off for the next kBatchesWithoutDelay batches.
//
// Used by one thread at a time.
class BatchDelay {
 public:
  using Clock = std::chrono::steady_clock;
  // The longest delay, however slow the server is.
  static constexpr std::chrono::microseconds kDelayMax{1000};
  static constexpr int kBatchesWithoutDelay = 8;

  explicit BatchDelay(Clock::duration delay_max = kDelayMax) : delay_max_(delay_max) {}

  // A batch of so many calls was answered, with whatever answers, after so long.
  void answered(std::size_t calls, Clock::duration took, Clock::time_point now) {
    look(now);
    if (without_delay_ > 0) {
      --without_delay_;
    } else if (calls > 1) { // a single caller is not worth a delay
      missing_ += calls;
      expected_ = missing_;
      until_ = now + std::min(took / 2, delay_max_);
    }
  }
  // A call has come, from any caller.
  void came() {
    if (missing_ > 0) --missing_;
  }

  // How many more calls the next batch waits for; 0 when the delay is over.
  std::size_t missing(Clock::time_point now) {
    look(now);
    return missing_;
  }
  // The same, as it was at the last look.
  std::size_t missing() const { return missing_; }
  // The end of the delay.
  Clock::time_point until() const { return until_; }

 private:
  void look(Clock::time_point now) {
    if (missing_ == 0 || now < until_) return;
    if (missing_ > expected_ / 2) without_delay_ = kBatchesWithoutDelay;
    missing_ = 0;
  }

  const Clock::duration delay_max_;
  std::size_t expected_ = 0;
  std::size_t missing_ = 0;
  Clock::time_point until_{};
  int without_delay_ = 0; // batches that still leave at once
};

struct QueuedCall {
  AnyCall what;
  RecordId id;              // calls of one id take turns
  Deadline send_by{};       // sent by then, or refused
  Deadline answer_by{};     // answered by then, or given up
  QueueRoom::Place place{}; // until it is answered
};

// `Call` is derived from QueuedCall. Used by one thread at a time; never calls back.
template <class Call>
class CallQueue {
 public:
  using CallPtr = std::unique_ptr<Call>;

  // Calls of one id that one answer may serve: the first is sent, the others share what it finds.
  struct Group {
    RecordId id;
    std::vector<CallPtr> calls;
    Millis rest{0}; // of a group given back: how long to leave the id alone
  };
  using Batch = std::vector<Group>;

  explicit CallQueue(Deadline::duration delay_max = BatchDelay::kDelayMax) : delay_(delay_max) {}

  void add(CallPtr call) {
    delay_.came();
    const RecordId id = call->id;
    Line& line = line_of(id);
    line.waiting.push_back(std::move(call));
    if (!line.under_way && !line.resting && line.waiting.size() == 1) ready_.push_back(id);
  }

  // Ids that may leave with the next batch.
  std::size_t ready() const { return ready_.size(); }
  // The same, with those that rest.
  bool has_ids() const { return !ready_.empty() || !resting_.empty(); }
  std::size_t under_way() const { return ids_under_way_; }
  // Calls that the next batch waits for, as of the last look.
  std::size_t missing() const { return delay_.missing(); }

  // When the next batch may leave: now, at a later time, or nothing while no call waits. `enough` ids are worth a batch
  // of their own, whatever else may come.
  std::optional<Deadline> departure(Deadline now, std::size_t enough) {
    wake_rested(now);
    std::optional<Deadline> at;
    if (!resting_.empty()) at = resting_.begin()->first;
    if (ready_.empty()) return at;
    const bool waits = delay_.missing(now) > 0 && ready_.size() < enough;
    const Deadline leaves = waits ? delay_.until() : now;
    return at ? std::min(*at, leaves) : leaves;
  }

  // Up to so many ids, and no more after so many bytes of bodies.
  Batch take(std::size_t ids_max, std::size_t bytes_max) {
    Batch batch;
    batch.reserve(std::min(ids_max, ready_.size()));
    for (std::size_t bytes = 0; !ready_.empty() && batch.size() < ids_max && bytes < bytes_max;) {
      const auto at = lines_.find(ready_.front());
      ready_.pop_front();
      if (at == lines_.end() || at->second.under_way || at->second.waiting.empty()) continue;
      batch.push_back(take_group(at->first, at->second));
      bytes += body_bytes(batch.back().calls.front()->what);
    }
    ids_under_way_ += batch.size();
    return batch;
  }

  // Every batch taken comes back, with the calls that are to be sent again. `took`: the time of its round trip.
  void give_back(Batch batch, Deadline::duration took, Deadline now) {
    std::size_t answered = 0;
    ids_under_way_ -= batch.size();
    for (Group& group : batch) {
      if (group.calls.empty()) ++answered;
      const auto at = lines_.find(group.id);
      Line& line = at->second;
      line.under_way = false;
      line.waiting.insert(line.waiting.begin(), std::make_move_iterator(group.calls.begin()),
                          std::make_move_iterator(group.calls.end()));
      if (line.waiting.empty()) {
        forget(at);
      } else if (group.rest > Millis{0}) {
        line.resting = true;
        resting_.emplace(now + group.rest, group.id);
      } else {
        ready_.push_back(group.id);
      }
    }
    delay_.answered(answered, took, now);
  }

  // Takes out what waits and fits the condition, to be refused.
  template <class Condition>
  std::vector<CallPtr> take_out(Condition condition) {
    std::vector<CallPtr> out;
    for (auto at = lines_.begin(); at != lines_.end();) {
      std::vector<CallPtr>& waiting = at->second.waiting;
      const auto gone =
          std::stable_partition(waiting.begin(), waiting.end(), [&](const CallPtr& call) { return !condition(*call); });
      out.insert(out.end(), std::make_move_iterator(gone), std::make_move_iterator(waiting.end()));
      waiting.erase(gone, waiting.end());
      const auto line = at++;
      if (waiting.empty() && !line->second.under_way) lines_.erase(line);
    }
    if (out.empty()) return out;
    std::erase_if(ready_, [&](const RecordId& id) { return !lines_.contains(id); });
    std::erase_if(resting_, [&](const auto& each) { return !lines_.contains(each.second); });
    return out;
  }

 private:
  // The calls of one id.
  struct Line {
    std::vector<CallPtr> waiting;
    bool under_way = false;
    bool resting = false;
  };
  using Lines = std::unordered_map<RecordId, Line>;
  // Nodes of the map that are used again, so that a call usually allocates none.
  static constexpr std::size_t kSpareLinesMax = 1024;

  Line& line_of(const RecordId& id) {
    const auto found = lines_.find(id);
    if (found != lines_.end()) return found->second;
    if (spare_.empty()) return lines_[id];
    typename Lines::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = id;
    return lines_.insert(std::move(node)).position->second;
  }

  void forget(typename Lines::iterator at) {
    at->second.resting = false;
    typename Lines::node_type node = lines_.extract(at);
    if (spare_.size() < kSpareLinesMax) spare_.push_back(std::move(node));
  }

  Group take_group(const RecordId& id, Line& line) {
    std::size_t count = 1;
    while (count < line.waiting.size() && may_share(line.waiting.front()->what, line.waiting[count]->what)) ++count;
    line.under_way = true;
    if (count == line.waiting.size()) return {id, std::exchange(line.waiting, {})};
    const auto end = line.waiting.begin() + static_cast<std::ptrdiff_t>(count);
    Group group{id, {std::make_move_iterator(line.waiting.begin()), std::make_move_iterator(end)}};
    line.waiting.erase(line.waiting.begin(), end);
    return group;
  }

  void wake_rested(Deadline now) {
    while (!resting_.empty() && resting_.begin()->first <= now) {
      const RecordId id = resting_.begin()->second;
      resting_.erase(resting_.begin());
      const auto line = lines_.find(id);
      if (line == lines_.end() || !line->second.resting) continue;
      line->second.resting = false;
      ready_.push_back(id);
    }
  }

  Lines lines_;
  std::vector<typename Lines::node_type> spare_;
  std::deque<RecordId> ready_; // ids with calls and none under way; may name ids that have none by now
  std::multimap<Deadline, RecordId> resting_;
  std::size_t ids_under_way_ = 0;
  BatchDelay delay_;
};

} // namespace oncekey
