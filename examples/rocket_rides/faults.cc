#include "faults.h"

#include <unistd.h>
#include <csignal>

namespace rides {

oncekey::StatementObserver CrashPoint::observer() const {
  return [state = state_](oncekey::StatementMoment moment, std::string_view) {
    if (moment == oncekey::StatementMoment::round_trip || !state->armed) return;
    if (--state->left == 0) ::kill(::getpid(), state->then == Then::die ? SIGKILL : SIGSTOP);
  };
}

} // namespace rides
