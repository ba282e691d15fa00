// script_call: one verb on one record, on its way to a server and back.
//
// Calls for records of one partition travel together as a batch: one script run, one reply.
#pragma once

#include "redis/connection.h"
#include "store/common/call_queue.h"
#include "store/common/memory_watch.h"
#include "store/redis/scripts.h"
#include "store/redis/slots.h"

#include <concepts>
#include <functional>
#include <span>

namespace oncekey::redis {

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
    (append_word(arguments, as_word(more)), ...);
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
