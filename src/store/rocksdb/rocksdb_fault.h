// rocksdb_fault: RocksDB's statuses as our faults.
#pragma once

#include <oncekey/result.h>

#include <rocksdb/status.h>

#include <string>
#include <string_view>

namespace oncekey {

// Damage is `corrupt`, all else `unavailable`. `what` says in words which step failed.
inline Fault fault_of(const rocksdb::Status& status, std::string_view what) {
  const FaultKind kind = status.IsCorruption() ? FaultKind::corrupt : FaultKind::unavailable;
  return Fault{kind, std::string(what) + ": " + status.ToString()};
}

} // namespace oncekey
