#include "base/process_usage.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace oncekey {
namespace {

TEST(ProcessUsage, GrowsWithWhatIsTaken) {
  const ProcessUsage before = process_usage();
  std::vector<char> memory(64u << 20);
  std::memset(memory.data(), 1, memory.size());
  const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const ProcessUsage after = process_usage();
  ::close(descriptor);
  EXPECT_EQ(after.open_descriptors, before.open_descriptors + 1);
  EXPECT_GE(after.resident_bytes, before.resident_bytes + memory.size() / 2);
  EXPECT_GE(after.cpu_seconds, before.cpu_seconds);
  EXPECT_GT(after.cpu_seconds, 0);
  EXPECT_GT(after.descriptors_max, after.open_descriptors);
}

} // namespace
} // namespace oncekey
