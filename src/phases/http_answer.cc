// Outcomes as HTTP answers, by the words and rules of the core: what the library says and what the gateway says for the
// same thing are the same bytes.
#include "base/crypto.h"
#include "core/admit.h"
#include "core/replies.h"

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

} // namespace

HttpAnswer Runner::http_answer(const OperationRequest& request, const Result<RunOutcome>& outcome) const {
  if (!outcome.ok()) return http_answer_after_exception(request);
  const Policy& policy = options().policy;
  const std::string request_id = fmt::format("req_{}", random_uuid());
  const ReplyContext context{request.key, request_id, {}};
  const auto refused = [&](const Refusal& refusal) { return answer_of(refuse(policy, refusal, context)); };
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
      },
      outcome.value());
}

HttpAnswer Runner::http_answer_after_exception(const OperationRequest& request) const {
  const std::string request_id = fmt::format("req_{}", random_uuid());
  return answer_of(
      refuse(options().policy, refusal_of(RefusalCode::record_not_written), {request.key, request_id, {}}));
}

} // namespace oncekey
