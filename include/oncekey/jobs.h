// Jobs: work to be done after a transaction, staged inside it.
//
// A receipt that is mailed although the booking rolled back, or never mailed although it committed: both come from
// queueing in one step and committing in another. Here a job is a row of the same transaction. It exists if and only if
// the business rows do. The enqueuer (workers.h) hands it to a sink (sinks.h) afterwards, at least once, with an id
// that stays the same however often it is handed over. A consumer that must act once uses the id: as the idempotency
// key it is, or with process_once (inbox.h).
//
//     oncekey::run_transaction(database, [&](oncekey::Transaction& tx) {
//       tx.execute("INSERT INTO rides …");
//       tx.stage_job({.sink = "mail", .name = "send_receipt", .args = R"({"ride":17})"});
//     });
//
// A job that its sink refuses is tried again with growing pauses, and becomes a dead letter after too many refusals
// (EnqueuerOptions::attempts_max). It is then kept until an operator restarts it. Nothing else deletes a job that was
// not accepted.
#pragma once

#include <oncekey/time.h>

#include <cstdint>
#include <string>

namespace oncekey {

// Grows in the order of staging within a transaction, and is never used twice in one database. Two transactions may
// commit in another order than their ids: no consumer may rely on "all smaller ids are done".
using JobId = std::int64_t;

// A job as the application stages it, with Transaction::stage_job.
struct StagedJob {
  // Names the sink it goes to, one of those the enqueuer was given. A name that no enqueuer has is not an error: the
  // job waits, and count_backlog (workers.h) shows it under that name.
  std::string sink = "default";
  // What kind of work it is: the header Oncekey-Job of an HTTP sink's request or the class of a Sidekiq job.
  std::string name{};
  // What the consumer needs; any bytes. JSON by habit, and a JSON array of arguments for Sidekiq.
  std::string args{};
  // Not handed over before this much time has passed since it was staged, on the database's clock. It may be later: an
  // idle enqueuer looks for due jobs every EnqueuerOptions::idle_wait.
  Millis delay{0};
};

// A job as a sink gets it: the fields of the StagedJob, and what the library knows of it.
struct Job {
  JobId id = 0;
  std::string sink;
  std::string name;
  std::string args;
  Time staged_at{}; // on the database's clock, within its transaction
  int attempts = 0; // earlier attempts that the sink refused; times when the sink was down do not count
};

} // namespace oncekey
