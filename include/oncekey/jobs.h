// Jobs: work to be done after a transaction, staged inside it.
//
// A receipt that is mailed although the booking rolled back, or never mailed although it committed: both come from
// queueing in one step and committing in another. Here a job is a row of the same transaction. It exists if and only if
// the business rows do, and the enqueuer (workers.h) hands it to a sink afterwards, at least once, with an id that
// stays the same however often it is handed over. A consumer that must act once uses the id: as the idempotency key it
// is, or with process_once (inbox.h).
#pragma once

#include <oncekey/time.h>

#include <cstdint>
#include <string>

namespace oncekey {

// Grows in the order of staging within a transaction, and is never used twice in one database. Two transactions may
// commit in another order than their ids: nothing may rely on "all smaller ids are done".
using JobId = std::int64_t;

struct StagedJob {
  // Names the sink it goes to, one of those the enqueuer was given.
  std::string sink = "default";
  // What kind of work it is: the header Oncekey-Job of an HTTP sink's request or the class of a Sidekiq job.
  std::string name{};
  // For the consumer, any bytes; JSON by habit, and a JSON array of arguments for Sidekiq.
  std::string args{};
  // Not to be handed over before this much time has passed since it was staged.
  Millis delay{0};
};

// A job as a sink gets it.
struct Job {
  JobId id = 0;
  std::string sink;
  std::string name;
  std::string args;
  Time staged_at{};
  int attempts = 0; // tries before this one that the sink refused
};

} // namespace oncekey
