// store_tools: what is done to a store as a whole by a command, beside a gateway or instead of one.
#pragma once

#include "base/log.h"
#include "core/sealing.h"
#include "core/store_tools.h"

#include <oncekey/result.h>

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// The process that has an embedded store open; nothing if none has, and for the other kinds.
std::optional<pid_t> process_with_store(std::string_view url);

// How the store's server is backed up, in words; nothing for an embedded store, which Oncekey backs up itself.
std::optional<std::string> who_backs_up(std::string_view url);

enum class Thoroughness { numbers, everything };
struct VerifyOptions {
  Log& log;
  Thoroughness thoroughness = Thoroughness::everything;
  const Sealer* sealer = nullptr;
  TellProgress tell{};
};

// An embedded store that no process has open: all of it is read (store/journal/examine.h) and nothing changed. A shared
// one: schema or marker, and its newest kVerifiedRecordsMax records. `conflict` if a process has it open.
constexpr std::size_t kVerifiedRecordsMax = 10'000;
Result<StoreReport> verify_store(std::string_view url, const VerifyOptions& options);

// Of an embedded store that no process has open. A gateway does it with Store::back_up().
Result<BackupMade> back_up_store(std::string_view url, const std::string& to, const TellProgress& tell);
// A new store at `folder`, which must not exist, out of a backup.
Result<BackupMade> restore_store(const std::string& backup, const std::string& folder, const TellProgress& tell);

} // namespace oncekey
