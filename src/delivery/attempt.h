// attempt: what becomes of a message after an attempt to deliver it, as a pure function.
#pragma once

#include "config/config.h"

#include "core/store.h"

#include <optional>
#include <string>

namespace oncekey {

// How an attempt went: the receiver's status, or why there is none.
struct Delivered {
  int status = 0; // 0: no whole answer
  std::string reason;
  std::optional<Millis> retry_after;
};

// The number of the attempt that a job's message is up for: the message counts in its status the attempts made.
int attempt_number(const StoredResponse& message);

// How long ago the message was received, and whether others of its order may have gone before it in that time.
struct Stay {
  Stay(Millis since_receipt, bool in_an_order = false) : age(since_receipt), ordered(in_an_order) {}
  Millis age;
  bool ordered;
};

// `chance` is from 0 to less than 1, for the pause.
AttemptEnd end_of(const Endpoint& endpoint, StoredResponse message, const Delivered& delivered, Stay stay,
                  double chance);

// The job as it was, due again after the pause: no attempt was made.
AttemptEnd untried(StoredResponse message, Millis pause);

} // namespace oncekey
