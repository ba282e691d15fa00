#include "store/redis/call.h"

#include <utility>

namespace oncekey::redis {
namespace {

// EVALSHA, the script, the number of keys.
constexpr std::size_t kWordsBeforeKeys = 3;
// The generation, the tick, the clock, whether to count, the channel, the number of calls.
constexpr std::size_t kFrameWords = 6;
// Lengths and line ends around each word, about.
constexpr std::size_t kWordOverhead = 10;

LostMarker lost_marker(Reply reply) {
  LostMarker marker;
  if (reply[1].is_text()) marker.generation = std::string(reply[1].text());
  marker.replaces = std::string(reply[2].text());
  marker.tick = static_cast<std::uint64_t>(reply[3].integer().value_or(0));
  return marker;
}

// What the script touches besides the records. A cluster must know: while a slot moves it sends a call away whose keys
// are not all in one place.
std::vector<std::string> keys_of_jobs(const KeyNames& names, std::uint32_t partition, std::span<const CallPtr> calls) {
  std::vector<std::string> keys;
  for (const CallPtr& call : calls) {
    if (!call->job_route) continue;
    if (keys.empty()) keys.push_back(names.jobs(partition));
    keys.push_back(names.due_jobs(partition, *call->job_route));
    keys.push_back(names.jobs_in_order(call->id));
  }
  return keys;
}

} // namespace

std::string batch_command(const BatchFrame& frame, std::uint32_t partition, std::span<const CallPtr> calls) {
  const std::vector<std::string> job_keys = keys_of_jobs(frame.names, partition, calls);
  const std::size_t keys = 1 + calls.size() + job_keys.size();
  std::size_t words = kWordsBeforeKeys + keys + kFrameWords;
  std::size_t bytes = 256;
  for (const CallPtr& call : calls) {
    words += call->words;
    bytes += call->arguments.size() + 96 + kWordOverhead;
  }
  std::string out;
  out.reserve(bytes);
  append_word_count(out, words);
  append_word(out, "EVALSHA");
  append_word(out, frame.script_sha);
  append_word(out, std::to_string(keys));
  append_word(out, frame.names.marker(partition));
  for (const CallPtr& call : calls) append_word(out, frame.names.record(call->id));
  for (const std::string& key : job_keys) append_word(out, key);
  append_word(out, frame.generation);
  append_word(out, std::to_string(frame.seen_tick));
  append_word(out, frame.clock);
  append_word(out, frame.count_tick ? "1" : "0");
  append_word(out, frame.names.channel());
  append_word(out, std::to_string(calls.size()));
  for (const CallPtr& call : calls) out.append(call->arguments);
  return out;
}

Result<BatchReply> parse_batch_reply(Reply reply, std::size_t calls) {
  BatchReply batch;
  if (reply[0].text() == "LOST") {
    batch.lost = lost_marker(reply);
    return batch;
  }
  const auto now = reply[0].integer();
  const auto tick = reply[1].integer();
  if (reply.size() != calls + 2 || !reply[0].is_integer() || !now || !tick || *tick < 0) {
    return Fault{FaultKind::timeout, "Redis gave an answer of an unexpected shape"};
  }
  batch.now = Time{Millis{*now}};
  batch.tick = static_cast<std::uint64_t>(*tick);
  batch.answers = reply;
  return batch;
}

} // namespace oncekey::redis
