// attempt_lines: the newest attempts of a job as one text, the same in every store.
//
//     attempts := { at TAB gateway TAB status TAB reason LF }       oldest first, at most kAttemptsKept lines
//
// `at` is in milliseconds on the store's clock, and the status is 0 if there was no whole answer. A server appends a
// line, and takes the first one away once a job has more attempts than are kept: it looks at nothing else in them.
#pragma once

#include "core/job.h"

#include <optional>

namespace oncekey {

// What a receiver or a fault says, as a line can have it: cut at the beginning of a character, without control
// characters.
inline constexpr std::size_t kAttemptReasonBytesMax = 200;
std::string attempt_reason(std::string_view reason);

// A line behind its `at`, for servers that have the clock.
std::string attempt_line(std::string_view gateway, const AttemptResult& result);

std::string encode_attempts(const std::vector<Attempt>& attempts);
// Nothing if the text does not have this shape.
std::optional<std::vector<Attempt>> decode_attempts(std::string_view text);

} // namespace oncekey
