#include "base/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace oncekey {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t open_descriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  if (error) return 0;
  // The look has one of its own.
  return static_cast<std::uint64_t>(std::distance(begin(all), end(all))) - 1;
}

} // namespace

ProcessUsage process_usage() {
  ProcessUsage usage{.resident_bytes = resident_bytes(), .open_descriptors = open_descriptors()};
  rusage times{};
  if (::getrusage(RUSAGE_SELF, &times) == 0) usage.cpu_seconds = seconds(times.ru_utime) + seconds(times.ru_stime);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) usage.descriptors_max = limit.rlim_cur;
  return usage;
}

} // namespace oncekey
