// Outcomes as HTTP answers, by the rules of core: for the same outcome, library and gateway send the same bytes.
#include "base/crypto.h"
#include "base/reasons.h"
#include "base/utf8.h"
#include "core/admit.h"
#include "core/replies.h"
#include "phases/core_rules.h"

#include <oncekey/runner.h>

#include <fmt/format.h>

namespace oncekey {
namespace {

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};

HttpAnswer answer_of(Reply reply) {
  return {reply.status, std::move(reply.reason), std::move(reply.headers), std::move(reply.body)};
}

Refusal refusal_of(RefusalCode code, std::string detail = {},
                   std::optional<std::chrono::seconds> retry_after = std::nullopt) {
  return {code, std::move(detail), retry_after, {}};
}

Refusal refusal_of_key(const Policy& policy, const KeyInvalid& bad) {
  switch (bad.part) {
    case KeyInvalid::Part::no_key:
      return key_missing(policy);
    case KeyInvalid::Part::key:
      return refusal_of(RefusalCode::key_invalid, bad.why.empty() ? "" : fmt::format("Here {}.", bad.why));
    case KeyInvalid::Part::principal:
      break;
  }
  return refusal_of(RefusalCode::principal_missing);
}

// What a fault of run() means to the client: see runner.h.
RefusalCode code_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::invalid:
    case FaultKind::newer_format:
    case FaultKind::corrupt:
      return RefusalCode::application_mistake;
    case FaultKind::exhausted:
      return RefusalCode::overloaded;
    case FaultKind::unavailable:
    case FaultKind::timeout:
    case FaultKind::conflict:
      break;
  }
  return RefusalCode::record_not_written;
}

RefusalCode code_of(const NotDeclared& unknown) {
  // Another process, or the next deploy, has the step.
  const bool elsewhere = unknown.part == NotDeclared::Part::recovery_point;
  return elsewhere ? RefusalCode::not_finished : RefusalCode::application_mistake;
}

HttpAnswer plain_answer(int status, std::string text) {
  HttpAnswer answer{status, std::string(reason_of(status)), {}, std::move(text) + "\n"};
  answer.headers.add("Content-Type", "text/plain; charset=utf-8");
  return answer;
}

} // namespace

HttpAnswer Runner::http_answer(const OperationRequest& request, const Result<RunOutcome>& outcome) const {
  const Policy policy = phases::policy_of(options().policy);
  const std::string request_id = fmt::format("req_{}", random_uuid());
  const ReplyContext context{request.key, request_id, {}};
  const auto refused = [&](const Refusal& refusal) { return answer_of(refuse(policy, refusal, context)); };
  if (!outcome.ok()) return refused(refusal_of(code_of(outcome.fault().kind)));
  return std::visit(
      Match{
          [&](const Finished& finished) {
            return answer_of(finished.replayed ? replay(policy, finished.response, context)
                                               : first_answer(policy, finished.response, context, Kept::yes));
          },
          [&](const InProgress& busy) { return refused(refusal_of(RefusalCode::in_progress, {}, busy.retry_after)); },
          [&](const Mismatch&) { return refused(refusal_of(RefusalCode::mismatch)); },
          [&](const KeyInvalid& bad) { return refused(refusal_of_key(policy, bad)); },
          [&](const Conflict& conflict) {
            return refused(refusal_of(RefusalCode::in_progress,
                                      "It gave way to other requests for the same data and has not gone on since.",
                                      conflict.retry_after));
          },
          [&](const DeadLettered&) { return refused(refusal_of(RefusalCode::indeterminate)); },
          [&](const RequestInvalid& bad) {
            return refused(refusal_of(RefusalCode::request_invalid, fmt::format("Here {}.", bad.why)));
          },
          [&](const NotDeclared& unknown) { return refused(refusal_of(code_of(unknown))); },
      },
      outcome.value());
}

HttpAnswer Runner::http_answer_after_exception(const OperationRequest& request) const {
  const std::string request_id = fmt::format("req_{}", random_uuid());
  return answer_of(refuse(phases::policy_of(options().policy), refusal_of(RefusalCode::not_finished),
                          {request.key, request_id, {}}));
}

HttpAnswer Runner::resume_answer(std::string_view id) {
  const std::optional<RecordId> parsed = record_id_from_hex(id);
  if (!parsed) return plain_answer(400, "an operation's id has 64 hex digits");
  try {
    const auto outcome = resume(*parsed);
    if (!outcome.ok()) return plain_answer(500, outcome.fault().message);
    return std::visit(Match{
                          [](const Finished&) { return plain_answer(200, "finished"); },
                          [](const InProgress&) { return plain_answer(202, "not yet: another run is at work"); },
                          [](const Conflict&) { return plain_answer(202, "not yet: it gave way to other requests"); },
                          [](const DeadLettered& dead) { return plain_answer(410, "a dead letter: " + dead.why); },
                          [](const NotDeclared& unknown) { return plain_answer(404, unknown.why); },
                          // Only a request can be a mismatch, and a resumed operation has none.
                          [](const Mismatch&) { return plain_answer(500, "mismatch"); },
                          [](const KeyInvalid& bad) { return plain_answer(500, bad.why); },
                          [](const RequestInvalid& bad) { return plain_answer(500, bad.why); },
                      },
                      outcome.value());
  } catch (const std::exception& error) {
    return plain_answer(500, as_utf8(error.what()));
  } catch (...) {
    return plain_answer(500, "an exception that is not a std::exception was thrown");
  }
}

} // namespace oncekey
