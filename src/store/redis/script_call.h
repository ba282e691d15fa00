// script_call: one verb on one record, on its way to a server and back.
//
// Calls for records of one partition travel together as a batch: one script run, one reply.
//
// Two scripts touch records and jobs, each for a batch: any number of calls in one partition. Script::records does to a
// record what core/transitions.cc says, Script::jobs to a job what core/job_transitions.cc says, on the server's clock.
// The value of a record and the fields of a job are described beside their decoders in values.h. A marker is a hash
// with the fields generation, replaces, tick and fence, and for each record that is not settled a field with the
// record's name: "LEASE EXPIRY" in milliseconds, with a lease of 0 for an indeterminate one.
#pragma once

#include "redis/connection.h"
#include "store/common/call_queue.h"
#include "store/common/marker_keeper.h"
#include "store/redis/slots.h"

#include <concepts>
#include <functional>
#include <span>

namespace oncekey::redis {

enum class Script { records, jobs };

// KEYS: the marker, then a record or a job for each call, then what else the calls touch.
// ARGV: the generation and the largest tick that were seen of the marker, the time to go by or nothing, "1" to count
// the tick up, the channel to announce on, the number of calls; then for each call a letter and its arguments.
// Answers {now, tick, answer of each call...}; a call that the server refused to write for, or whose record cannot be
// read, has an error in place of its answer. {"LOST", generation, replaces, tick} when the marker is not of this
// generation or has a smaller tick, with nothing changed.
//
// Of records:
//   C times identity                              claim: twice its fence, and one more after a takeover; or the record
//   T times identity                              the same, of a caller that takes over what is abandoned
//   F interest                                    find: the record, or nil
//   R owner lease                                 renew:    1 done, 0 lost
//   D owner answer                                complete: the same
//   P owner answer                                complete with an answer that is not whole yet: the same
//   L owner                                       release:  the same
//   H owner finder                                hold:     the same
//   O release|complete|rerun|hold partial answer  operate:  0 done, 1 absent, 2 live, 3 completed
// `owner`, `identity` and `answer` are parts of a record's value: the fence, and behind it the token of the claim if
// that is known; what stands from the token to the texts; what follows the texts. `times` are retention and lease, each
// as eight bytes.
//
// Of jobs:
//   S fingerprint route key ordered delay retention message   stage: {1 staged or 0, the fingerprint that is there}
//   T route limit lease overdue     take: the number of jobs of the route that may be taken now or later, and for each
//                                   one taken its id, its fields and its message
//   E fence delivered|again|dead attempted status reason pause why_dead keep_message   end: 1 done, 0 lost
//   O retry|drop state fence        operate: 0 done, 1 absent, 2 taken, 3 over, 4 the message is gone, 5 changed since
//                                   it had this state and fence; with an empty fence these are not compared
//   F                               find: {fields, message}, or nil
const std::string& text_of(Script script);

struct ScriptAnswer {
  RedisReply reply;
  Time now{}; // the store's clock when it was made
};

// What a script is given, as text.
inline std::string_view as_word(std::string_view text) { return text; }
inline std::string_view as_word(std::same_as<bool> auto flag) { return flag ? "1" : "0"; }
inline std::string as_word(std::uint64_t number) { return std::to_string(number); }
inline std::string as_word(Millis time) { return std::to_string(std::max<std::int64_t>(0, time.count())); }

struct ScriptCall : QueuedCall {
  Script script = Script::records;
  std::uint32_t partition = 0;
  std::string arguments; // of the script, as words on the wire; `what` has no bodies
  std::size_t words = 0;
  // The other calls of a group that left together: they share the answer.
  std::vector<std::unique_ptr<ScriptCall>> sharing;
  std::string job_route; // touches the indexes of this route's jobs; empty for none
  // Of a take: told whether the route has jobs left in this partition.
  std::function<void(bool)> jobs_left;
  // Sent in a batch of its own: others may be in another place while a slot is on its way.
  bool alone = false;
  std::optional<Host> asked; // where an ASK has sent it; once
  int resent = 0;

  template <class... Words>
  void add(const Words&... more) {
    words += sizeof...(more);
    append_words(arguments, {as_word(more)...});
  }
};
using CallPtr = std::unique_ptr<ScriptCall>;
// The words are the verb and its arguments.
template <class... Words>
CallPtr call_for(Script script, const RecordId& id, const Words&... words) {
  auto call = std::make_unique<ScriptCall>();
  call->script = script;
  call->id = id;
  call->add(words...);
  return call;
}

// Answers a call and those that share its answer. Returns the claims among them that have to be sent themselves, since
// they would change what the first one found or made.
[[nodiscard]] std::vector<CallPtr> answer_calls(ScriptCall& call, const Result<ScriptAnswer>& answer);

// What a batch is sent with, besides its calls.
struct BatchFrame {
  const KeyNames& names;
  std::string_view script_sha;
  std::string_view generation;
  std::uint64_t seen_tick = 0; // the largest of the partition's marker
  std::string clock;           // empty for the server's
  bool count_tick = false;
};
std::string batch_command(const BatchFrame& frame, std::uint32_t partition, std::span<const CallPtr> calls);

struct BatchReply {
  bool lost = false; // it met a marker that it was not made for, and nothing was done
  std::optional<Marker>
      met; // then: of another generation, or with a smaller tick than was seen; nothing if none is there
  Time now{};
  std::uint64_t tick = 0; // of the marker, with or without having been counted up
  RedisReply answers;     // the first two elements are not answers
  RedisReply answer(std::size_t call) const { return answers[call + 2]; }
};
// A fault (`timeout`, since something may have been done) if it has not the shape of a reply to so many calls.
Result<BatchReply> parse_batch_reply(RedisReply reply, std::size_t calls);

} // namespace oncekey::redis
