// verify: whether the lines of an audit log are all there and as they were written.
#pragma once

#include "audit/audit_files.h"

#include <functional>

namespace oncekey {

struct AuditVerdict {
  std::uint64_t lines = 0;
  ChainHead first; // the number of the first line; its hash is that of the line before it
  ChainHead last;
  std::string last_time;
  std::string chain;                // its name, as the files have it
  std::uint64_t newer = 0;          // whole lines behind the head that the store keeps: not covered by it yet
  std::vector<std::string> broken;  // what is wrong, each with FILE:LINE; empty if nothing is
  std::vector<std::string> notices; // what an operator should know and is no fault
};

// Told now and then how many bytes of how many were looked at.
using AuditProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

// Reads all files, oldest first. `heads` is what the store keeps; its head of the files' chain is compared.
//
// A head is kept only when its lines are on disk. So a log that ends before the head has lost lines, and one that goes
// on behind it is a gateway at work, or one that crashed before it could keep the next head.
//
// Lines that are missing at the beginning must be those that a line "removed" names, or come before the line `from`:
// an operator who has archived files says so.
Result<AuditVerdict> verify_audit(const AuditFiles& files, const ChainHeads& heads, const AuditProgress& progress,
                                  std::uint64_t from = 1);

} // namespace oncekey
