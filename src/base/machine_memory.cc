#include "base/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace oncekey {
namespace {

constexpr std::string_view kGroups = "/sys/fs/cgroup";

// The folder of this process' control group, of the second version.
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::/")) return std::string(kGroups) + line.substr(3);
  }
  return std::string(kGroups);
}

// Nothing if there is no such file, or it says "max".
std::optional<std::uint64_t> number_in_file(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::optional<std::uint64_t> machine_memory(std::string_view wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  for (std::uint64_t kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == wanted) return kib << 10;
  }
  return std::nullopt;
}

// Calls `use(folder, limit)` for each group with a limit. Those of the groups above count as well: in a container the
// topmost one is the container's.
template <class Use>
void each_limit(const Use& use) {
  for (std::string group = control_group(); group.starts_with(kGroups); group.erase(group.rfind('/'))) {
    if (const auto most = number_in_file(group + "/memory.max")) use(group, *most);
  }
}

} // namespace

std::optional<std::uint64_t> available_memory() {
  std::optional<std::uint64_t> available = machine_memory("MemAvailable:");
  each_limit([&](const std::string& group, std::uint64_t most) {
    const std::uint64_t used = number_in_file(group + "/memory.current").value_or(0);
    const std::uint64_t left = most > used ? most - used : 0;
    available = std::min(available.value_or(left), left);
  });
  return available;
}

std::optional<std::uint64_t> memory_limit() {
  std::optional<std::uint64_t> limit = machine_memory("MemTotal:");
  each_limit([&](const std::string&, std::uint64_t most) { limit = std::min(limit.value_or(most), most); });
  return limit;
}

} // namespace oncekey
