#include "gateway/observation.h"

#include "core/decide.h"
#include "gateway/execution.h"
#include "gateway/owned_key.h"

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

Task<void> observe(GatewayThread& thread, PassThrough& pass_through, Admission& admission, Replier& replier) {
  GatewayShared& shared = thread.shared;
  Exchange& exchange = *replier.client();
  KeyedRequest request = admission.take();
  const Policy& policy = request.route.policy;
  // Records of observation live beside those of enforcement and never answer for them: when the route is switched over,
  // nothing observed is replayed.
  for (std::uint8_t& byte : request.admitted.id.bytes) byte = static_cast<std::uint8_t>(byte ^ 0xff);
  ClaimRequest wanted = claim_for(shared, request);
  shared.live_calls.renew_after_a_pause(shared.store);
  const MonotonicTime start = std::chrono::steady_clock::now();
  const Result<ClaimAnswer> answer = co_await await_store<ClaimAnswer>(
      thread.wakeups, [&](auto done) { shared.store.claim(std::move(wanted), std::move(done)); });
  shared.metrics.claim_seconds.Observe(seconds_since(start));
  if (!answer) {
    // Observation must not cost a client its answer.
    shared.metrics.store_faults.Increment();
    replier.count("bypass");
    co_await pass_through.run(exchange, request.route, admission.sharer(), PassThrough::kNoMarks, &request.body);
    co_return;
  }
  const Decision decision = decide(policy, request.admitted.fingerprint, *answer);
  replier.count(observed(decision.verdict));
  const Passed passed =
      co_await pass_through.run(exchange, request.route, admission.sharer(), PassThrough::kNoMarks, &request.body);
  const auto* claimed = std::get_if<Claimed>(&*answer);
  if (claimed == nullptr) co_return;
  // The record ends as enforcement would have left it, so that the next request is counted as it would be decided.
  OwnedKey key(thread, {request.admitted.id, claimed->fence, claimed->token}, policy.lease);
  const Settlement settlement = settle(policy, outcome_of(passed.error, passed.status, passed.headers));
  if (settlement == Settlement::keep || settlement == Settlement::executed) {
    StoredResponse nothing;
    nothing.status = passed.status;
    (void)co_await key.complete(std::move(nothing));
  } else {
    co_await key.let_go(settlement);
  }
}

} // namespace oncekey
