// StoreFindings: what was found so far in a store that is read from end to end, and how far the reading has come.
#pragma once

#include "core/store_tools.h"

#include <oncekey/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey {

// What to do about damage, where nothing better is known.
inline constexpr std::string_view kRestoreBackup =
    "restore a backup, or move the folder away to start with an empty store";
inline constexpr std::string_view kKeepAndRestore =
    "make a backup of the folder as it is, and restore the newest backup that `oncekey store verify` finds sound";
inline constexpr std::string_view kUseItsVersion = "use the version of oncekey that wrote it, or a later one";

class StoreFindings {
 public:
  explicit StoreFindings(TellProgress tell) : tell_(std::move(tell)) {}

  StoreReport report;

  // Both return false, for a step that fails with it.
  bool problem(std::string what, std::string_view next);
  bool problem(const Fault& fault, std::string_view next = kRestoreBackup);

  // So much is going to be done, in bytes that are read and summed up; what takes longer counts for more bytes.
  // Progress is told as a part of report.bytes_on_disk.
  void expect(std::uint64_t bytes) { total_ += bytes; }
  void read(std::uint64_t bytes);
  // The reading is to end here.
  bool given_up() const { return given_up_; }

 private:
  const TellProgress tell_;
  std::uint64_t done_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t total_ = 0;
  bool given_up_ = false;
};

// XXH3-64 of a file that has so many bytes; each piece counts as read.
Result<std::uint64_t> checksum_of_file(const std::string& path, std::uint64_t bytes, StoreFindings& findings);

} // namespace oncekey
