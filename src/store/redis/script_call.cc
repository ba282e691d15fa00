#include "store/redis/script_call.h"

#include "core/record_codec.h"
#include "core/transitions.h"
#include "store/redis/values.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace oncekey::redis {
namespace {

// EVALSHA, the script, the number of keys.
constexpr std::size_t kWordsBeforeKeys = 3;
// The generation, the tick, the clock, whether to count, the channel, the number of calls.
constexpr std::size_t kFrameWords = 6;
// Lengths and line ends around each word, about.
constexpr std::size_t kWordOverhead = 10;

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

// An enumerator by its number.
template <class Answer>
Result<Answer> numbered(const ScriptAnswer& answer, Answer last) {
  const std::int64_t number = answer.reply.integer().value_or(-1);
  if (number < 0 || number > static_cast<std::int64_t>(last)) return odd_answer();
  return static_cast<Answer>(number);
}

// What each kind of call is answered with.
Result<ClaimAnswer> answer_to(const ClaimCall&, const ScriptAnswer& answer) {
  if (answer.reply.is_integer()) {
    const auto fence_and_took_over = static_cast<std::uint64_t>(*answer.reply.integer());
    return ClaimAnswer(Claimed{fence_and_took_over / 2, fence_and_took_over % 2 == 1, answer.now});
  }
  Result<Found> found = found_in(answer);
  if (!found) return std::move(found).fault();
  return ClaimAnswer(*std::move(found));
}

Result<std::optional<Found>> answer_to(const FindCall&, const ScriptAnswer& answer) {
  if (answer.reply.is_nil()) return std::optional<Found>();
  Result<Found> found = found_in(answer);
  if (!found) return std::move(found).fault();
  return std::optional<Found>(*std::move(found));
}

Result<FenceAnswer> fence_answer(const ScriptAnswer& answer) {
  if (!answer.reply.is_integer()) return odd_answer();
  return *answer.reply.integer() == 1 ? FenceAnswer::done : FenceAnswer::lost;
}
Result<FenceAnswer> answer_to(const FenceCall&, const ScriptAnswer& answer) { return fence_answer(answer); }
Result<FenceAnswer> answer_to(const AttemptCall&, const ScriptAnswer& answer) { return fence_answer(answer); }

Result<OperatorAnswer> answer_to(const OperatorCall&, const ScriptAnswer& answer) {
  return numbered(answer, OperatorAnswer::completed);
}
Result<JobAnswer> answer_to(const JobOperatorCall&, const ScriptAnswer& answer) {
  return numbered(answer, JobAnswer::changed);
}

Result<StageAnswer> answer_to(const StageCall&, const ScriptAnswer& answer) {
  StageAnswer told{answer.reply[0].integer() == 1, {}};
  const std::string_view fingerprint = answer.reply[1].text();
  if (fingerprint.size() != told.fingerprint.bytes.size()) return odd_answer();
  std::memcpy(told.fingerprint.bytes.data(), fingerprint.data(), fingerprint.size());
  return told;
}

Result<std::vector<TakenJob>> answer_to(const TakeCall&, const ScriptAnswer& answer) {
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

Result<std::optional<FoundJob>> answer_to(const FindJobCall& call, const ScriptAnswer& answer) {
  if (answer.reply.is_nil()) return std::optional<FoundJob>();
  Result<StoredJob> job = decode_job_fields(call.id, answer.reply[0]);
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

// Takes out of those that share an answer what has to be sent itself: claims that would change what the first one
// found or made.
template <class Answer>
std::vector<CallPtr> take_unanswered(ScriptCall&, const Result<Answer>&) {
  return {};
}
std::vector<CallPtr> take_unanswered(ScriptCall& call, const Result<ClaimAnswer>& answer) {
  if (!answer || call.sharing.empty()) return {};
  const Found* const found = std::get_if<Found>(&*answer);
  if (found == nullptr) return std::exchange(call.sharing, {});
  const std::optional<Record> record(*found->record);
  const auto first = std::stable_partition(call.sharing.begin(), call.sharing.end(), [&](const CallPtr& each) {
    return !claim_changes(record, std::get<ClaimCall>(each->what).request, found->now);
  });
  std::vector<CallPtr> unanswered(std::make_move_iterator(first), std::make_move_iterator(call.sharing.end()));
  call.sharing.erase(first, call.sharing.end());
  return unanswered;
}

} // namespace

std::vector<CallPtr> answer_calls(ScriptCall& call, const Result<ScriptAnswer>& answer) {
  if (!answer) {
    refuse(call.what, answer.fault());
    for (const CallPtr& each : call.sharing) refuse(each->what, answer.fault());
    return {};
  }
  if (call.jobs_left) {
    if (const auto left = answer->reply[0].integer()) call.jobs_left(*left > 0);
  }
  const auto tell_all = [&]<class Call>(const Call& first) {
    auto told = answer_to(first, *answer);
    std::vector<CallPtr> unanswered = take_unanswered(call, told);
    for (const CallPtr& each : call.sharing) std::get<Call>(each->what).done(told);
    first.done(std::move(told));
    return unanswered;
  };
  return std::visit(tell_all, call.what);
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
    batch.lost = true;
    const auto tick = static_cast<std::uint64_t>(reply[3].integer().value_or(0));
    if (reply[1].is_text()) batch.met = Marker{std::string(reply[1].text()), std::string(reply[2].text()), tick, false};
    return batch;
  }
  const auto now = reply[0].integer();
  const auto tick = reply[1].integer();
  if (reply.size() != calls + 2 || !reply[0].is_integer() || !now || !tick || *tick < 0) {
    return odd_answer();
  }
  batch.now = Time{Millis{*now}};
  batch.tick = static_cast<std::uint64_t>(*tick);
  batch.answers = reply;
  return batch;
}

} // namespace oncekey::redis
