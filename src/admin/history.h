// History: what happened in the last hour, one row for every few seconds, in a fixed amount of memory (about 140 KiB).
//
// Rows are numbered. The console asks for those since the last one it has, so that an open page costs a row every step.
// Numbers go on from the time of the start: those of an earlier process are known to be gone.
//
// Belongs to the loop of the operators.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace oncekey {

// The columns of a row, in the order and with the names of the API. Counts are of one step; NaN is not known.
enum class HistoryColumn {
  at, // end of the step, in seconds since 1970
  first,
  replay,
  in_progress,
  mismatch,
  held,
  refused,
  failed,
  passed,
  upstream_p50_ms,
  upstream_p95_ms,
  upstream_p99_ms,
  store_p50_ms,
  store_p95_ms,
  store_p99_ms,
  in_flight,
  waiters,
  connections,
  keys_waiting,
  storm_keys,
  jobs_waiting,
  jobs_dead,
  store_bytes,
  rss_bytes,
};
inline constexpr std::size_t kHistoryColumns = 24;

// What became of a request, as the console shows it; nothing for a decision that is not about a request of a client.
// One of the columns from `first` to `passed`.
std::optional<HistoryColumn> column_of_decision(std::string_view decision);

class History {
 public:
  static constexpr std::chrono::seconds kStep{5};
  static constexpr std::size_t kRows = std::chrono::hours(1) / kStep;

  using Row = std::array<double, kHistoryColumns>;

  // `first`: the number of the first row.
  explicit History(std::uint64_t first) : first_(first), next_(first) {}

  void add(const Row& row) { rows_[next_++ % kRows] = row; }

  // The number that the next row will have.
  std::uint64_t next() const { return next_; }

  struct Since {
    std::vector<Row> rows; // oldest first
    bool gap = false;      // some rows since that number are gone, or the number was never given
  };
  // From row number `since` on; all without one.
  Since since(std::optional<std::uint64_t> since) const;

 private:
  std::uint64_t first_;
  std::uint64_t next_;
  std::array<Row, kRows> rows_{};
};

// The counts of a histogram's buckets so far, not cumulated; the last is beyond all bounds.
using BucketCounts = std::vector<std::uint64_t>;

// The value that a part (0.95) of what was counted is at or below, by straight lines within buckets. NaN if nothing was
// counted. What is beyond the last bound counts as that bound.
double percentile(std::span<const double> bounds, std::span<const std::uint64_t> counts, double part);

} // namespace oncekey
