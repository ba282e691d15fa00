// exit_codes: the exit codes of the subcommands for operators.
#pragma once

namespace oncekey {

inline constexpr int kDone = 0;
inline constexpr int kRefused = 1;
inline constexpr int kUsage = 2;
inline constexpr int kUnreachable = 3;

} // namespace oncekey
