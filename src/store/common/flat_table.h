// FlatTable: finds numbers of entries by hash, in arrays of eight bytes a cell.
//
// The entries are the caller's. A cell holds a number and 32 bits of hash, so that a search seldom looks at an entry
// that is not the one, and growing looks at none. Linear probing; at most three cells of four are used, at least one of
// eight. The cells are in 64 parts that grow one by one, so that no insertion waits for a copy of the whole table.
#pragma once

#include <oncekey/check.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace oncekey {

// The number of no entry.
inline constexpr std::uint32_t kNoEntry = 0xffff'ffff;

class FlatTable {
 public:
  // The number for which `is_it(number)` is true among those of this hash; kNoEntry if there is none.
  template <class IsIt>
  std::uint32_t find(std::uint32_t hash, IsIt is_it) const {
    const Part& part = parts_[hash >> kPartShift];
    return part.cells.empty() ? kNoEntry : part.cells[part.search(hash, is_it)].number;
  }

  void insert(std::uint32_t hash, std::uint32_t number) {
    Part& part = parts_[hash >> kPartShift];
    if (4 * (part.used + 1) > 3 * part.cells.size()) part.resize(std::max(kCellsMin, 2 * part.cells.size()));
    part.put({number, hash});
    ++part.used;
  }
  // `number` must be there.
  void replace(std::uint32_t hash, std::uint32_t number, std::uint32_t by) {
    Part& part = parts_[hash >> kPartShift];
    part.cells[part.cell_of(hash, number)].number = by;
  }
  void erase(std::uint32_t hash, std::uint32_t number) {
    Part& part = parts_[hash >> kPartShift];
    std::vector<Cell>& cells = part.cells;
    std::size_t hole = part.cell_of(hash, number);
    const std::size_t mask = cells.size() - 1;
    // A cell behind the hole moves into it unless it stands between the hole and where its hash would have it.
    for (std::size_t at = (hole + 1) & mask; cells[at].number != kNoEntry; at = (at + 1) & mask) {
      if (((at - cells[at].hash) & mask) < ((at - hole) & mask)) continue;
      cells[hole] = cells[at];
      hole = at;
    }
    cells[hole] = Cell{};
    if (8 * --part.used < cells.size() && cells.size() > kCellsMin) part.resize(cells.size() / 2);
  }

 private:
  static constexpr std::size_t kParts = 64;
  static constexpr int kPartShift = 26;        // the upper six bits of a hash tell the part
  static constexpr std::size_t kCellsMin = 16; // a power of two, like every size
  struct Cell {
    std::uint32_t number = kNoEntry;
    std::uint32_t hash = 0;
  };
  struct Part {
    // Where the search ends: at the cell, or at an empty one. There must be cells.
    template <class IsIt>
    std::size_t search(std::uint32_t hash, IsIt is_it) const {
      std::size_t at = hash & (cells.size() - 1);
      while (cells[at].number != kNoEntry && (cells[at].hash != hash || !is_it(cells[at].number))) {
        at = (at + 1) & (cells.size() - 1);
      }
      return at;
    }
    std::size_t cell_of(std::uint32_t hash, std::uint32_t number) const {
      ONCEKEY_CHECK(used > 0, "the table has the entry");
      const std::size_t at = search(hash, [&](std::uint32_t other) { return other == number; });
      ONCEKEY_CHECK(cells[at].number == number, "the table has the entry");
      return at;
    }
    void put(const Cell& cell) {
      cells[search(cell.hash, [](std::uint32_t) { return false; })] = cell;
    }
    void resize(std::size_t size) {
      const std::vector<Cell> old = std::exchange(cells, std::vector<Cell>(size));
      for (const Cell& cell : old) {
        if (cell.number != kNoEntry) put(cell);
      }
    }

    std::vector<Cell> cells;
    std::size_t used = 0;
  };

  std::array<Part, kParts> parts_;
};

} // namespace oncekey
