// AuditTrail: what operators did: one log line each, which is written however little else is logged, and the newest of
// them in memory for the console.
//
// Belongs to the loop of the operators.
#pragma once

#include "base/log.h"
#include "net/task.h"

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

inline Time wall_clock() { return std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now()); }

struct AuditLine {
  Time at{};          // of the wall clock
  std::string who;    // Visitor::name()
  std::string action; // "release"; of several jobs at once "retry_jobs"
  std::string id;     // of a record or job, in hex; empty if it is about several
  std::string result;
  std::string reason;
  std::string peer{};  // the address that it came from
  std::uint64_t n = 0; // its number in this process, from 1 on; the trail gives it
};

// What is known of one record or job beside itself.
struct RecordTrail {
  // Requests that got the same decision; where the audit log has them.
  struct Decided {
    std::uint64_t count = 0;
    Time last{};
    std::string gateway;
  };
  // What an owner did; where the audit log has decisions.
  struct Claim {
    Time at{};
    std::string event; // claimed, taken_over, released, held, lease_lost
    std::string gateway;
    std::uint64_t fence = 0;
    std::string trace;
  };
  std::vector<AuditLine> actions;                        // of operators, oldest first
  std::vector<Claim> claims;                             // oldest first
  std::map<std::string, Decided, std::less<>> decisions; // by the decision, as in "replay"
  std::string back_to; // the log was looked at back to this time and not further; empty: all of it was
};

class AuditTrail {
 public:
  // Kept in memory; a busy day of an operations team.
  static constexpr std::size_t kMost = 1000;

  explicit AuditTrail(Log& log) : log_(log) {}

  void note(AuditLine line);
  // Each line also goes there: the audit log. Set once, before the first request.
  using Also = std::function<void(const AuditLine& line)>;
  void write_into(Also also) { also_ = std::move(also); }

  // Where lines about a record are found that are older than this process. Set once, before the first request.
  using Older = std::function<Task<RecordTrail>(const RecordId& id)>;
  void read_older(Older older) { older_ = std::move(older); }
  bool has_older() const { return static_cast<bool>(older_); }

  // `id` outlives the task.
  Task<RecordTrail> about(const RecordId& id) const;
  // Those with a smaller number than `before`, or all if it is 0, and written before `until`. Newest first.
  std::vector<AuditLine> newest(std::size_t limit, std::uint64_t before, std::optional<Time> until) const;
  // The number of the oldest line in memory; 0 if there is none.
  std::uint64_t oldest() const { return lines_.empty() ? 0 : lines_.front().n; }

 private:
  Log& log_;
  std::deque<AuditLine> lines_; // oldest first
  std::uint64_t noted_ = 0;
  Older older_;
  Also also_;
};

} // namespace oncekey
