// examine: reads an embedded store that no process has open, as a start would and further, and changes nothing in it.
//
// Read are: what a start reads (closed_store.h); every block of RocksDB's files; every record, job, message and large
// body, with the indexes (content_check.h). A backup that no process has opened since, restored or not, is compared
// with the checksums that it was made with.
#pragma once

#include "core/sealing.h"
#include "core/store_tools.h"

#include <oncekey/result.h>

#include <string>

namespace oncekey {

enum class Depth {
  numbers,   // what a start reads; sizes and counts, some of them estimates
  everything // each byte
};

struct ExamineOptions {
  Depth depth = Depth::everything;
  const Sealer* sealer = nullptr; // opens the secret where that is sealed
  TellProgress tell{};
};

// What is damaged is in the report. A fault means that it could not be read at all: `invalid` if there is no store,
// `conflict` if it was given up.
Result<StoreReport> examine_journal(const std::string& folder, const ExamineOptions& options);

} // namespace oncekey
