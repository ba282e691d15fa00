// read_audit: the lines of an audit log for people, newest first.
#pragma once

#include "audit/audit_files.h"

namespace oncekey {

// People name a record by so many digits of its id, or more: `oncekey audit show` prints as many.
inline constexpr std::size_t kRecordBeginningMin = 12;

struct AuditQuery {
  std::uint64_t before = 0; // only lines with a smaller number; 0: from the newest on
  std::size_t limit = 100;
  // Only lines about one of these records, each given by its id or the beginning of it, or with one of these keys, as
  // lines show them. Both empty: all lines.
  std::vector<std::string> records{};
  std::vector<std::string> keys{};
  std::string event{}; // only lines of this event; empty for all
  // Instants as timestamp() writes them; empty for any time. `until` is not included.
  std::string since{};
  std::string until{};
  // At most about so many bytes are looked at: reading must not hold up the thread that does it.
  std::uint64_t look_bytes = 8u << 20;
};

struct AuditPage {
  std::vector<std::string> lines; // JSON, newest first
  std::uint64_t next = 0;         // AuditQuery::before of the next page; 0 if there is nothing behind this one
  std::uint64_t looked = 0;       // how many lines were looked at
  std::string back_to;            // the time of the oldest of them; empty if there was none
  // Files whose last line has no newline: it is being written, or was cut off, and is left out.
  std::vector<std::string> cut_off;
};

// Where the search begins (`before`, `until`) is found by halving the files. From there it goes back line by line.
Result<AuditPage> read_audit(const AuditFiles& files, const AuditQuery& query);

} // namespace oncekey
