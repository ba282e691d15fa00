// machine_memory: how much memory this process may have, by the machine and by the control groups it runs in.
#pragma once

#include <cstdint>
#include <optional>

namespace oncekey {

// What is free, and at most what the limits of this process' control groups leave. Nothing if the kernel does not tell.
std::optional<std::uint64_t> available_memory();

// The machine's memory, or the least limit of this process' control groups. A process that has more is killed.
std::optional<std::uint64_t> memory_limit();

} // namespace oncekey
