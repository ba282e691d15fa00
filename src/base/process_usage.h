// process_usage: what this process takes of the machine, by the kernel's books.
#pragma once

#include <cstdint>

namespace oncekey {

struct ProcessUsage {
  double cpu_seconds = 0; // of all threads, in user and kernel mode
  std::uint64_t resident_bytes = 0;
  std::uint64_t open_descriptors = 0;
  std::uint64_t descriptors_max = 0; // the soft limit
};

// Zero for what the kernel does not tell.
ProcessUsage process_usage();

} // namespace oncekey
