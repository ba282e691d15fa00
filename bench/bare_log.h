// BareLog: what a durable log costs without a store around it: synced writes, one after the other, past the page cache,
// into a file that was written before. The measuring stick for the journal.
#pragma once

#include "load.h"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>

namespace oncekey::bench {

class BareLog {
 public:
  // Makes the file.
  explicit BareLog(const std::string& path);
  BareLog(const BareLog&) = delete;
  BareLog& operator=(const BareLog&) = delete;
  ~BareLog();

  // Writes so many bytes, a multiple of 4 KiB, behind the write before, or at the begin where the file ends.
  void write(std::size_t bytes);

 private:
  static constexpr std::size_t kFileBytes = std::size_t{16} << 20;

  const std::string path_;
  int file_ = -1;
  std::size_t offset_ = 0;
  std::unique_ptr<char, decltype(&std::free)> bytes_{nullptr, &std::free};
};

} // namespace oncekey::bench
