// Job: a message that a gateway has promised to deliver, and how far the delivery is.
//
// The message is written once, when the job is staged. Everything that happens afterwards changes only the small state
// beside it. The job is also the memory of its event: its id is the keyed hash of the event's id, so that a repetition
// finds the job, whatever has become of it, until it expires.
//
//             stage              take                  end: delivered
//   (absent) ───────► waiting ─────────────► taken ───────────────────► delivered
//                        ▲  ▲                 │  │ end: dead
//                        │  └── end: again ───┘  └──────────────────► dead
//                        └── retry, by an operator: from waiting, delivered or dead
//   drop, by an operator: from waiting or dead to dropped. A job whose lease is over counts as waiting.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/record.h>
#include <oncekey/time.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

enum class JobState : std::uint8_t {
  waiting = 1,   // due at due_at
  taken = 2,     // a courier has it until due_at; after that it is due again
  delivered = 3, // the receiver accepted it
  dropped = 4,   // an operator decided that it is not delivered
  dead = 5,      // a dead letter: given up for the reason in why_dead, until an operator decides
};
std::string_view to_string(JobState state);

// What is delivered.
struct Message {
  std::string method = "POST";
  std::string target; // for people: the URL it went to when it was staged; the configuration decides
  Headers headers;    // without Host, Idempotency-Key and what the endpoint adds
  std::string body;
  // Target, headers and body, encrypted; those are empty then. Null when they are plain.
  std::shared_ptr<const Sealed> sealed{};

  // Of headers and body, or of what is sealed.
  std::size_t bytes() const { return headers.lines().size() + body.size() + (sealed ? sealed->bytes.size() : 0); }
};

// How an attempt ended.
struct AttemptResult {
  int status = 0;     // the receiver's; 0 if there was no whole answer
  std::string reason; // the reason phrase, or why there was no answer
};
// "503 Service Unavailable", or the reason alone.
std::string to_string(const AttemptResult& result);

struct Attempt {
  Time at{};           // when it ended
  std::string gateway; // the name of the gateway that made it
  AttemptResult result;
};
// A job remembers the newest of its attempts: enough to see how a receiver answers over some hours. They are written
// with every attempt, and take less than 3 KiB (core/attempt_lines.h).
inline constexpr std::size_t kAttemptsKept = 10;

// A job as a store keeps it, without its message. (oncekey::Job is a row of the library's table.)
struct StoredJob {
  // Made as a record's id is. Jobs and records are kept apart: a claim of the same id does not see the job.
  RecordId id;
  Fingerprint fingerprint; // of the message; tells a repetition from another message under the same key
  JobState state = JobState::waiting;
  bool ordered = false;     // taken only when no earlier job of the same order is waiting or taken; see order_of
  bool message_kept = true; // false once the message was deleted: the job can no longer be delivered
  std::uint64_t fence = 0;  // of the newest take; 0 before the first
  std::uint32_t attempts = 0;
  Time staged_at{};
  Time due_at{};              // waiting: not taken before then; taken: the end of the lease
  Time ended_at{};            // when it was delivered, dropped or given up
  Time expires_at{};          // from this instant on the job counts as absent
  std::string route;          // the webhook or destination it goes to, by its name in the configuration
  std::string key;            // the event's id as the sender gave it
  std::vector<Attempt> tried; // the newest kAttemptsKept of its attempts, oldest first
  std::string why_dead;

  // The newest attempt; an empty one if none was made.
  Attempt last() const { return tried.empty() ? Attempt{} : tried.back(); }
  bool expired(Time now) const { return now >= expires_at; }
  // Waiting or taken: it is still to be delivered.
  bool open() const { return state == JobState::waiting || state == JobState::taken; }
  // As people see it: a job whose lease is over waits for the next courier.
  JobState state_at(Time now) const { return state == JobState::taken && now >= due_at ? JobState::waiting : state; }
};

// Jobs that must go one after another have ids with the same first two bytes, by which Redis Cluster finds the place of
// a job, and the same last eight, which name the order.
inline RecordId with_order(RecordId id, const RecordId& order) {
  std::memcpy(id.bytes.data(), order.bytes.data(), 2);
  std::memcpy(id.bytes.data() + id.bytes.size() - 8, order.bytes.data() + order.bytes.size() - 8, 8);
  return id;
}
inline std::uint64_t order_of(const RecordId& id) {
  std::uint64_t order;
  std::memcpy(&order, id.bytes.data() + id.bytes.size() - sizeof order, sizeof order);
  return order;
}

} // namespace oncekey
