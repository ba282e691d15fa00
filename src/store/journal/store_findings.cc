#include "store/journal/store_findings.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace oncekey {
namespace {

// One damaged block can show in thousands of records.
constexpr std::size_t kProblemsShown = 50;
constexpr std::uint64_t kToldEveryBytes = std::uint64_t{4} << 20;

} // namespace

bool StoreFindings::problem(std::string what, std::string_view next) {
  if (report.problems.size() == kProblemsShown) {
    ++report.problems_left_out;
  } else {
    report.problems.push_back({std::move(what), std::string(next)});
  }
  return false;
}

bool StoreFindings::problem(const Fault& fault, std::string_view next) {
  return problem(fault.message, fault.kind == FaultKind::newer_format ? kUseItsVersion : next);
}

void StoreFindings::read(std::uint64_t bytes) {
  done_ += bytes;
  if (done_ - told_ < kToldEveryBytes) return;
  told_ = done_;
  if (!tell_ || total_ == 0) return;
  const double part = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const auto shown = static_cast<std::uint64_t>(part * static_cast<double>(report.bytes_on_disk));
  if (!tell_(shown, report.bytes_on_disk)) given_up_ = true;
}

Result<std::uint64_t> checksum_of_file(const std::string& path, std::uint64_t bytes, StoreFindings& findings) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return corrupt(fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::string piece(std::size_t{1} << 20, '\0');
  std::uint64_t all = 0;
  ssize_t got = 0;
  while ((got = ::read(file, piece.data(), piece.size())) > 0) {
    XXH3_64bits_update(hash.get(), piece.data(), static_cast<std::size_t>(got));
    all += static_cast<std::uint64_t>(got);
    findings.read(static_cast<std::uint64_t>(got));
  }
  const int error = errno;
  ::close(file);
  if (got < 0) return corrupt(fmt::format("{} cannot be read: {}", path, std::strerror(error)));
  if (all != bytes) return corrupt(fmt::format("{} has {} bytes and should have {}", path, all, bytes));
  return XXH3_64bits_digest(hash.get());
}

} // namespace oncekey
