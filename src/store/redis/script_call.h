// script_call: one verb on one record, on its way to a server and back.
//
// Calls for records of one partition travel together as a batch: one script run, one reply.
#pragma once

#include "redis/connection.h"
#include "store/common/call_queue.h"
#include "store/redis/slots.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::redis {

struct ScriptAnswer {
  RedisReply reply;
  Time now{}; // the store's clock when it was made
};

enum class Script { records, jobs };

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

  void add(std::string_view word) {
    append_word(arguments, word);
    ++words;
  }
  void add_decimal(std::uint64_t number) { add(std::to_string(number)); }
  void add_millis(Millis time) { add_decimal(static_cast<std::uint64_t>(std::max<std::int64_t>(0, time.count()))); }
};
using CallPtr = std::unique_ptr<ScriptCall>;
CallPtr call_for(const RecordId& id, std::string_view verb, Script script = Script::records);

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

// The marker that a batch met and was not made for: of another generation, or with a smaller tick than was seen;
// nothing where there is none.
struct LostMarker {
  std::optional<std::string> generation;
  std::string replaces;
  std::uint64_t tick = 0;
};

struct BatchReply {
  std::optional<LostMarker> lost; // then nothing was done
  Time now{};
  std::uint64_t tick = 0; // of the marker, with or without having been counted up
  RedisReply answers;     // the first two elements are not answers
  RedisReply answer(std::size_t call) const { return answers[call + 2]; }
};
// A fault (`timeout`, since something may have been done) if it has not the shape of a reply to so many calls.
Result<BatchReply> parse_batch_reply(RedisReply reply, std::size_t calls);

} // namespace oncekey::redis
