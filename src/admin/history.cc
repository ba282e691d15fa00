#include "admin/history.h"

#include "base/enum_name.h"
#include "core/decide.h"
#include "core/refusal.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace oncekey {
namespace {

HistoryColumn column_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::execute:
    case Verdict::probe:
      return HistoryColumn::first;
    case Verdict::replay:
      return HistoryColumn::replay;
    case Verdict::mismatch:
      return HistoryColumn::mismatch;
    case Verdict::in_progress:
      return HistoryColumn::in_progress;
    case Verdict::hold:
    case Verdict::indeterminate:
      return HistoryColumn::held;
    case Verdict::answer_not_kept:
      return HistoryColumn::refused;
  }
  return HistoryColumn::refused;
}

// An upstream or a store that gave no answer, in contrast to a request that is refused for what it is.
bool is_failure(RefusalCode code) {
  switch (code) {
    case RefusalCode::jwks_unavailable:
    case RefusalCode::not_reauthorized:
    case RefusalCode::store_unavailable:
    case RefusalCode::record_not_written:
    case RefusalCode::upstream_unreachable:
    case RefusalCode::upstream_unknown:
    case RefusalCode::upstream_timeout:
    case RefusalCode::answer_unusable:
    case RefusalCode::store_full:
      return true;
    default:
      return false;
  }
}

using Columns = std::unordered_map<std::string_view, HistoryColumn>;

Columns columns_by_decision() {
  Columns columns;
  each_enumerator<Verdict>([&](Verdict verdict) { columns.emplace(to_string(verdict), column_of(verdict)); });
  each_enumerator<RefusalCode>([&](RefusalCode code) {
    columns.emplace(to_string(code), is_failure(code) ? HistoryColumn::failed : HistoryColumn::refused);
  });
  columns[to_string(RefusalCode::abandoned)] = HistoryColumn::held;
  for (const std::string_view passed : {"pass", "websocket", "bypass"}) columns.emplace(passed, HistoryColumn::passed);
  for (const std::string_view refused : {"no_upstream", "malformed", "loop", "not_authorized"})
    columns.emplace(refused, HistoryColumn::refused);
  for (const std::string_view going_on : {"accepted", "status_pending", "observed_in_progress"})
    columns.emplace(going_on, HistoryColumn::in_progress);
  columns.emplace("observed_execute", HistoryColumn::first);
  columns.emplace("observed_replay", HistoryColumn::replay);
  columns.emplace("observed_mismatch", HistoryColumn::mismatch);
  columns.emplace("observed_refusal", HistoryColumn::refused);
  return columns;
}

} // namespace

std::optional<HistoryColumn> column_of_decision(std::string_view decision) {
  static const Columns kColumns = columns_by_decision();
  const auto found = kColumns.find(decision);
  if (found == kColumns.end()) return std::nullopt;
  return found->second;
}

History::Since History::since(std::optional<std::uint64_t> since) const {
  const std::uint64_t oldest = std::max(first_, next_ - std::min<std::uint64_t>(next_, kRows));
  Since found;
  found.gap = since && (*since < oldest || *since > next_);
  const std::uint64_t from = since && !found.gap ? *since : oldest;
  found.rows.reserve(next_ - from);
  for (std::uint64_t number = from; number < next_; ++number) found.rows.push_back(rows_[number % kRows]);
  return found;
}

double percentile(std::span<const double> bounds, std::span<const std::uint64_t> counts, double part) {
  const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (all == 0) return std::numeric_limits<double>::quiet_NaN();
  const double wanted = part * static_cast<double>(all);
  double below = 0;
  for (std::size_t i = 0; i < counts.size() && i < bounds.size(); ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here > 0 && below + here >= wanted) {
      const double low = i == 0 ? 0 : bounds[i - 1];
      return low + (bounds[i] - low) * (wanted - below) / here;
    }
    below += here;
  }
  return bounds.back();
}

} // namespace oncekey
