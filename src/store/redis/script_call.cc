#include "store/redis/script_call.h"

#include "core/job_codec.h"
#include "core/transitions.h"
#include "store/redis/job_value.h"
#include "store/redis/record_value.h"

#include <cstring>
#include <utility>

namespace oncekey::redis {
namespace {

// EVALSHA, the script, the number of keys.
constexpr std::size_t kWordsBeforeKeys = 3;
// The generation, the tick, the clock, whether to count, the channel, the number of calls.
constexpr std::size_t kFrameWords = 6;
// Lengths and line ends around each word, about.
constexpr std::size_t kWordOverhead = 10;

LostMarker lost_marker(RedisReply reply) {
  LostMarker marker;
  if (reply[1].is_text()) marker.generation = std::string(reply[1].text());
  marker.replaces = std::string(reply[2].text());
  marker.tick = static_cast<std::uint64_t>(reply[3].integer().value_or(0));
  return marker;
}

// What the script touches besides one key for each call. A cluster must know: while a slot moves it sends a call away
// whose keys are not all in one place.
std::vector<std::string> other_keys(const KeyNames& names, std::uint32_t partition, std::span<const CallPtr> calls) {
  std::vector<std::string> keys;
  bool indexes = false;
  for (const CallPtr& call : calls) {
    if (call->script == Script::jobs) keys.push_back(names.message(call->id));
    if (call->job_route.empty()) continue;
    if (!std::exchange(indexes, true)) {
      keys.insert(keys.end(), {names.jobs(partition), names.job_counts(partition), names.job_expiry(partition)});
    }
    keys.push_back(names.due_jobs(partition, call->job_route));
    keys.push_back(names.jobs_in_order(call->id));
  }
  return keys;
}

Fault odd_answer() { return {FaultKind::timeout, "Redis gave an answer of an unexpected shape"}; }

Result<Found> found_in(const ScriptAnswer& answer) {
  if (!answer.reply.is_text()) return odd_answer();
  Result<Record> record = decode_value(answer.reply.text());
  if (!record) return std::move(record).fault();
  return Found{*std::move(record), answer.now};
}

Result<FenceAnswer> fence_answer(const ScriptAnswer& answer) {
  if (!answer.reply.is_integer()) return odd_answer();
  return *answer.reply.integer() == 1 ? FenceAnswer::done : FenceAnswer::lost;
}

Result<OperatorAnswer> operator_answer(const ScriptAnswer& answer) {
  constexpr OperatorAnswer kAnswers[] = {OperatorAnswer::done, OperatorAnswer::absent, OperatorAnswer::live,
                                         OperatorAnswer::completed};
  const std::int64_t number = answer.reply.integer().value_or(-1);
  if (number < 0 || number > 3) return odd_answer();
  return kAnswers[number];
}

Result<StageAnswer> stage_answer(const ScriptAnswer& answer) {
  StageAnswer told{answer.reply[0].integer() == 1, {}};
  const std::string_view fingerprint = answer.reply[1].text();
  if (fingerprint.size() != told.fingerprint.bytes.size()) return odd_answer();
  std::memcpy(told.fingerprint.bytes.data(), fingerprint.data(), fingerprint.size());
  return told;
}

Result<std::vector<TakenJob>> taken_answer(const ScriptAnswer& answer) {
  std::vector<TakenJob> taken;
  std::optional<Fault> failed;
  for (std::size_t at = 1; at + 2 < answer.reply.size(); at += 3) {
    const std::optional<RecordId> id = record_id_from_hex(answer.reply[at].text());
    if (!id) return odd_answer();
    Result<StoredJob> job = decode_job_fields(*id, answer.reply[at + 1]);
    if (!job) {
      failed = std::move(job).fault();
      continue;
    }
    taken.push_back({*std::move(job), {}, answer.now});
    Result<Message> message = decode_message(answer.reply[at + 2].text());
    if (message) {
      taken.back().message = *std::move(message);
    } else {
      taken.back().unreadable = std::move(message).fault();
    }
  }
  if (taken.empty() && failed) return *std::move(failed);
  return taken;
}

Result<std::optional<FoundJob>> found_job(const RecordId& id, const ScriptAnswer& answer) {
  if (answer.reply.is_nil()) return std::optional<FoundJob>();
  Result<StoredJob> job = decode_job_fields(id, answer.reply[0]);
  if (!job) return std::move(job).fault();
  FoundJob found{*std::move(job), {}, answer.now};
  if (!answer.reply[1].is_nil()) {
    Result<Message> message = decode_message(answer.reply[1].text());
    if (message) {
      found.message = *std::move(message);
    } else {
      found.unreadable = std::move(message).fault();
    }
  }
  return std::optional<FoundJob>(std::move(found));
}

Result<JobAnswer> job_answer(const ScriptAnswer& answer) {
  constexpr JobAnswer kAnswers[] = {JobAnswer::done, JobAnswer::absent, JobAnswer::taken, JobAnswer::over,
                                    JobAnswer::message_gone};
  const std::int64_t number = answer.reply.integer().value_or(-1);
  if (number < 0 || number > 4) return odd_answer();
  return kAnswers[number];
}

std::vector<CallPtr> answer_claims(ScriptCall& call, const ScriptAnswer& answer) {
  const ClaimCall& claim = std::get<ClaimCall>(call.what);
  if (answer.reply.is_integer()) {
    const auto fence_and_took_over = static_cast<std::uint64_t>(*answer.reply.integer());
    claim.done(ClaimAnswer(Claimed{fence_and_took_over / 2, fence_and_took_over % 2 == 1, answer.now}));
    return std::move(call.sharing);
  }
  const Result<Found> found = found_in(answer);
  if (!found) return answer_calls(call, found.fault());
  claim.done(ClaimAnswer(*found));
  if (call.sharing.empty()) return {};
  std::vector<CallPtr> others;
  const std::optional<Record> record(*found->record);
  for (CallPtr& each : call.sharing) {
    const ClaimCall& other = std::get<ClaimCall>(each->what);
    if (claim_changes(record, other.request, found->now)) {
      others.push_back(std::move(each));
    } else {
      other.done(ClaimAnswer(*found));
    }
  }
  return others;
}

void answer_finds(const ScriptCall& call, const ScriptAnswer& answer) {
  Result<std::optional<Found>> told = std::optional<Found>();
  if (!answer.reply.is_nil()) {
    Result<Found> found = found_in(answer);
    told = found ? Result<std::optional<Found>>(std::optional<Found>(*std::move(found))) : std::move(found).fault();
  }
  std::get<FindCall>(call.what).done(told);
  for (const CallPtr& each : call.sharing) std::get<FindCall>(each->what).done(told);
}

} // namespace

CallPtr call_for(const RecordId& id, std::string_view verb, Script script) {
  auto call = std::make_unique<ScriptCall>();
  call->id = id;
  call->script = script;
  call->add(verb);
  return call;
}

std::vector<CallPtr> answer_calls(ScriptCall& call, const Result<ScriptAnswer>& answer) {
  if (!answer) {
    refuse(call.what, answer.fault());
    for (const CallPtr& each : call.sharing) refuse(each->what, answer.fault());
    return {};
  }
  if (std::holds_alternative<ClaimCall>(call.what)) return answer_claims(call, *answer);
  if (std::holds_alternative<FindCall>(call.what)) {
    answer_finds(call, *answer);
  } else if (const auto* fence = std::get_if<FenceCall>(&call.what)) {
    fence->done(fence_answer(*answer));
  } else if (const auto* by_hand = std::get_if<OperatorCall>(&call.what)) {
    by_hand->done(operator_answer(*answer));
  } else if (const auto* attempt = std::get_if<AttemptCall>(&call.what)) {
    attempt->done(fence_answer(*answer));
  } else if (const auto* stage = std::get_if<StageCall>(&call.what)) {
    stage->done(stage_answer(*answer));
  } else if (const auto* find = std::get_if<FindJobCall>(&call.what)) {
    find->done(found_job(call.id, *answer));
  } else if (const auto* decision = std::get_if<JobOperatorCall>(&call.what)) {
    decision->done(job_answer(*answer));
  } else if (const auto* take = std::get_if<TakeCall>(&call.what)) {
    if (const auto left = answer->reply[0].integer()) call.jobs_left(*left > 0);
    take->done(taken_answer(*answer));
  }
  return {};
}

std::string batch_command(const BatchFrame& frame, std::uint32_t partition, std::span<const CallPtr> calls) {
  const std::vector<std::string> job_keys = other_keys(frame.names, partition, calls);
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
  for (const CallPtr& call : calls) {
    append_word(out, call->script == Script::jobs ? frame.names.job(call->id) : frame.names.record(call->id));
  }
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

Result<BatchReply> parse_batch_reply(RedisReply reply, std::size_t calls) {
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
