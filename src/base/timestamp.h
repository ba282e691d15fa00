// timestamp: an instant of the wall clock as the logs write it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// "2026-01-02T03:04:05.678Z"
std::string timestamp(std::chrono::system_clock::time_point at);

// Reads what timestamp() writes, and shorter forms of it: "2026-01-02", "2026-01-02T03:04", "2026-01-02T03:04:05", each
// with or without a Z behind it; always UTC. Nothing for any other text.
std::optional<std::chrono::system_clock::time_point> parse_timestamp(std::string_view text);

} // namespace oncekey
