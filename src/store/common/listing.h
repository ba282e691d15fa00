// listing: which records a ListRequest or BrowseRequest asks for, the same for every store that can ask here.
#pragma once

#include "core/store.h"

#include <oncekey/record.h>

#include <algorithm>

namespace oncekey {

// Expired records are never listed: to every caller they are absent.
inline bool is_listed(const ListRequest& request, const RecordId& id, const Record& record, Time now) {
  if (record.expired(now)) return false;
  if (request.state && record.state != *request.state) return false;
  if (request.abandoned_only && !record.abandoned(now)) return false;
  return request.id_prefix.empty() || to_hex(id).starts_with(request.id_prefix);
}

// Of a page's place apart.
inline bool is_browsed(const BrowseRequest& request, const Record& record, Time now) {
  if (record.expired(now)) return false;
  if (!request.key.empty() && record.key != request.key) return false;
  if (!request.route.empty() && record.route != request.route) return false;
  return is_shown(request.shown, record, now);
}

// Whether the look can go through the keys that are not settled alone.
inline bool only_waiting(KeysShown shown) {
  return shown == KeysShown::waiting || shown == KeysShown::abandoned || shown == KeysShown::indeterminate;
}

// Whether `a` is shown before `b`: the newer one, or that with the larger id.
inline bool newer(const BrowsePlace& a, const BrowsePlace& b) {
  return a.first_received != b.first_received ? a.first_received > b.first_received : a.id > b.id;
}
inline bool comes_after(const std::optional<BrowsePlace>& place, const BrowsePlace& candidate) {
  return !place || newer(*place, candidate);
}

// Keeps the newest lines of a look that meets records in no order.
class NewestLines {
 public:
  explicit NewestLines(std::size_t limit) : limit_(limit) {}

  // `line` is called for those that have a place only.
  template <class MakeLine>
  void offer(const BrowsePlace& place, MakeLine line) {
    if (heap_.size() == limit_ && !newer(place, place_of(heap_.front()))) {
      left_out_ = true;
      return;
    }
    if (heap_.size() == limit_) {
      std::pop_heap(heap_.begin(), heap_.end(), before);
      heap_.pop_back();
      left_out_ = true;
    }
    heap_.push_back(line());
    std::push_heap(heap_.begin(), heap_.end(), before);
  }

  // `looked_at_all`: there was nothing else that could have been offered.
  BrowsePage page(std::uint64_t looked, bool looked_at_all) && {
    std::sort_heap(heap_.begin(), heap_.end(), before);
    BrowsePage page;
    page.lines = std::move(heap_);
    page.looked = looked;
    page.whole = looked_at_all && !left_out_;
    if (left_out_) page.next = place_of(page.lines.back());
    return page;
  }

 private:
  static BrowsePlace place_of(const Listed& line) { return {line.record.first_received, line.id}; }
  static bool before(const Listed& a, const Listed& b) { return newer(place_of(a), place_of(b)); }

  const std::size_t limit_;
  bool left_out_ = false;
  std::vector<Listed> heap_; // the oldest line is at the front
};

// What a listing tells of a record: all but the headers and the body.
inline Record as_listed(Record record) {
  if (record.response) {
    record.response->headers.clear();
    record.response->body.clear();
  }
  return record;
}

} // namespace oncekey
