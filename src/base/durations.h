// durations: "250ms", "60s", "5m", "24h", "30d" and back; sizes; moments.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

namespace oncekey {

// A whole number and a unit. A fault names the text and the units that exist.
Result<Millis> parse_duration(std::string_view text);
// The shortest exact spelling: 90000 ms is "90s", 86400000 ms is "24h".
std::string format_duration(Millis duration);

// "8MiB", "64KiB", "1048576": a whole number of bytes with an optional binary unit.
Result<std::uint64_t> parse_bytes(std::string_view text);

// "2026-01-02T03:04:05.678Z"
std::string iso_time(Time time);

} // namespace oncekey
