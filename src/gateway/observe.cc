// mode = "observe": everything is forwarded, and what enforcement would have done is only counted.
#include "core/settle.h"
#include "gateway/gateway.h"

#include <utility>

namespace oncekey {
namespace {

std::string_view observed(Verdict verdict) {
  switch (verdict) {
    case Verdict::execute:
    case Verdict::probe:
      return "observed_execute";
    case Verdict::replay:
    case Verdict::answer_not_kept:
      return "observed_replay";
    case Verdict::mismatch:
      return "observed_mismatch";
    case Verdict::in_progress:
      return "observed_in_progress";
    case Verdict::hold:
    case Verdict::indeterminate:
      return "observed_refusal";
  }
  return "observed_refusal";
}

} // namespace

Task<void> Gateway::observe(KeyedRequest& request) {
  // Records of observation live beside those of enforcement and never answer for them: when the route is switched over,
  // nothing observed is replayed.
  for (std::uint8_t& byte : request.admitted.id.bytes) byte = static_cast<std::uint8_t>(byte ^ 0xff);
  const Result<ClaimAnswer> answer = co_await claim(request, std::chrono::steady_clock::now());
  if (!answer) {
    // Observation must not cost anybody an answer.
    shared_.metrics.store_faults.Increment();
    request.count("bypass");
    co_await pass_through(*request.client, request.route, request.sharer, kNoMarks, &request.body);
    co_return;
  }
  const Decision decision = decide(request.policy(), request.admitted.fingerprint, *answer);
  request.count(observed(decision.verdict));
  Passed passed;
  co_await pass_through(*request.client, request.route, request.sharer, kNoMarks, &request.body, &passed);
  const auto* claimed = std::get_if<Claimed>(&*answer);
  if (claimed == nullptr) co_return;
  // The record ends as enforcement would have left it, so that the next request is counted as it would be decided.
  const Ownership owner{request.admitted.id, claimed->fence, claimed->token};
  StoredResponse nothing;
  nothing.status = passed.status;
  switch (settle(request.policy(), outcome_of(passed.error, passed.status, passed.headers))) {
    case Settlement::keep:
    case Settlement::executed:
      (void)co_await complete(owner, std::move(nothing));
      break;
    case Settlement::release:
      co_await release(request, owner);
      break;
    case Settlement::hold:
      co_await hold(request, owner);
      break;
    case Settlement::abandon:
      break;
  }
}

} // namespace oncekey
