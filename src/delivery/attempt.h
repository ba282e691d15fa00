// attempt: what becomes of a job after an attempt to deliver it, as a pure function.
#pragma once

#include "config/config.h"
#include "core/job_store.h"

namespace oncekey {

// How an attempt went: the receiver's answer, or why there is none.
struct Delivered {
  AttemptResult result;
  std::optional<Millis> retry_after;
};

// `age` is the time since the job was staged, and `chance` is from 0 to less than 1, for the pause.
AttemptEnd end_of(const Endpoint& endpoint, const StoredJob& job, const Delivered& delivered, Millis age,
                  double chance);

} // namespace oncekey
