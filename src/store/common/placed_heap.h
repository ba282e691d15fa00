// PlacedHeap: numbered entries in the order of a key, of which any can get another key or be taken out.
//
// The entries are the caller's, and each is told its position in the heap. Keys are kept in the heap itself, so that
// sorting looks at no entry.
#pragma once

#include "store/common/flat_table.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace oncekey {

// `Position` is the member of an entry in which its position is kept; kNoEntry while it is not here. `Entries` is a
// sequence of entries.
template <class Key, auto Position>
class PlacedHeap {
 public:
  // Puts the entry in, or gives it another key.
  template <class Entries>
  void set(Entries& entries, std::uint32_t number, const Key& key) {
    std::uint32_t at = entries[number].*Position;
    if (at == kNoEntry) {
      at = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    settle(entries, at, {key, number});
  }
  // Nothing happens if it is not here.
  template <class Entries>
  void erase(Entries& entries, std::uint32_t number) {
    const std::uint32_t at = std::exchange(entries[number].*Position, kNoEntry);
    if (at == kNoEntry) return;
    const Node last = nodes_.back();
    nodes_.pop_back();
    if (at < nodes_.size()) settle(entries, at, last);
  }
  // An entry that is here has got another number.
  template <class Entries>
  void renumber(const Entries& entries, std::uint32_t number) {
    if (const std::uint32_t at = entries[number].*Position; at != kNoEntry) nodes_[at].number = number;
  }

  // In the order of the keys, until `visit(key, number)` is false.
  template <class Visit>
  void in_order(Visit visit) const {
    const auto later = [&](std::uint32_t a, std::uint32_t b) { return nodes_[b].key < nodes_[a].key; };
    std::vector<std::uint32_t> next; // a heap too, of positions: what comes next is a child of what was visited
    const auto add = [&](std::size_t from, std::size_t to) {
      for (; from < std::min(to, nodes_.size()); ++from) {
        next.push_back(static_cast<std::uint32_t>(from));
        std::push_heap(next.begin(), next.end(), later);
      }
    };
    for (add(0, 1); !next.empty();) {
      std::pop_heap(next.begin(), next.end(), later);
      const std::uint32_t at = next.back();
      next.pop_back();
      if (!visit(nodes_[at].key, nodes_[at].number)) return;
      add(first_child(at), first_child(at) + kChildren);
    }
  }

 private:
  static constexpr std::size_t kChildren = 4; // their keys are one or two cache lines
  struct Node {
    Key key{};
    std::uint32_t number = kNoEntry;
  };

  static std::size_t first_child(std::size_t at) { return kChildren * at + 1; }

  // Puts the node where it belongs, the hole at `at` being free.
  template <class Entries>
  void settle(Entries& entries, std::size_t at, const Node& node) {
    const auto put = [&](std::size_t where, const Node& what) {
      nodes_[where] = what;
      entries[what.number].*Position = static_cast<std::uint32_t>(where);
    };
    for (; at > 0 && node.key < nodes_[(at - 1) / kChildren].key; at = (at - 1) / kChildren) {
      put(at, nodes_[(at - 1) / kChildren]);
    }
    for (;;) {
      const std::size_t end = std::min(first_child(at) + kChildren, nodes_.size());
      const Node* least = &node;
      std::size_t least_at = at;
      for (std::size_t child = first_child(at); child < end; ++child) {
        if (!(nodes_[child].key < least->key)) continue;
        least = &nodes_[child];
        least_at = child;
      }
      if (least_at == at) break;
      put(at, *least);
      at = least_at;
    }
    put(at, node);
  }

  std::deque<Node> nodes_; // growing moves none
};

} // namespace oncekey
