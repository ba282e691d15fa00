#include "gateway/keyed_flow.h"

#include "core/path.h"
#include "core/status_url.h"
#include "gateway/tracing.h"

namespace oncekey {
namespace {

// How often a request may find its record changed under its hands before it gives up. Each turn means that another
// request made progress, so that even two are rare.
constexpr int kTurnsMax = 16;

// The key as it came in its header, for the echo; the parsed one where it came from elsewhere.
std::string key_to_echo(const KeyedRequest& request) {
  for (const KeySource& source : request.route.policy.key_from) {
    if (source.kind != KeySource::Kind::header) continue;
    if (const auto value = request.head.headers.get(source.name)) return std::string(*value);
  }
  return request.admitted.key;
}

// Whether a request that may begin nothing new gets no answer from what was found. Beyond a rate only replays are
// answered; an abandoned claim would have to be taken over.
bool needs_new_work(const Decision& decision, const Found& found, const Limited& limited) {
  if (decision.verdict != Verdict::in_progress) return false;
  return limited.refusal || found.record->lease_over(found.now);
}

// An operation whose client was promised the answer for later. It goes on without its connection, with a copy of all it
// needs of it, and takes over the body, the places and the claim.
struct Detached {
  Detached(GatewayThread& thread, KeyedRequest& from, const Replier& answers, const Sharer& counts, Limited& limits,
           NewWork& held, const Claimed& claimed)
      : shared(thread.shared),
        counted(shared.detached),
        head(from.head),
        peer(from.from.peer),
        sharer(counts, shared.shares),
        buffered(shared, sharer),
        request{head, {peer, from.from.secure}, from.route, from.admitted, std::move(from.body), true, from.trace},
        trace(answers.trace(), shared.spans),
        replier(answers, trace.note()),
        limited(std::move(limits)),
        work(std::move(held)),
        execution(thread, request, claimed, replier, sharer, buffered, work) {
    buffered.hold(request.body.capacity());
  }

  GatewayShared& shared;
  const Counted counted; // before all others, so that it ends last: a drain waits for it
  const RequestHead head;
  const std::string peer;
  const Sharer sharer;
  BufferedBytes buffered;
  const KeyedRequest request; // key and id stay behind too, for the 202
  DetachedTrace trace;
  Replier replier;
  const Limited limited; // for its place
  NewWork work;
  Execution execution;
};

Task<void> run_detached(std::unique_ptr<Detached> detached, MonotonicTime before_claim, Verdict verdict) {
  try {
    // If the lease is lost, another owner has the answer, and no client waits for it here.
    (void)co_await detached->execution.run(before_claim, verdict);
  } catch (const std::exception& error) {
    // The claim is left to its lease, as after a crash.
    detached->shared.log.error("request_failed",
                               {{"key", short_hash(detached->request.admitted.id)}, {"reason", error.what()}});
  }
}

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

KeyActivity::Kind activity_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::mismatch:
      return KeyActivity::Kind::mismatch;
    case Verdict::hold:
    case Verdict::indeterminate:
      return KeyActivity::Kind::held;
    case Verdict::in_progress:
      return KeyActivity::Kind::in_progress;
    case Verdict::execute:
    case Verdict::probe:
    case Verdict::replay:
    case Verdict::answer_not_kept:
      break;
  }
  return KeyActivity::Kind::replay;
}

} // namespace

void trust_owner_here(const GatewayShared& shared, const RecordId& id, Found& found, Millis lease) {
  if (!found.record->abandoned(found.now) || shared.live_calls.fence_of(id) != found.record->fence) return;
  Record renewed = *found.record;
  renewed.lease_until = found.now + lease;
  found = Found{std::move(renewed), found.now};
}

Status readable(const Record& record) {
  if (!record.response || !record.response->sealed) return ok_status();
  return unavailable(fmt::format("the answer is sealed with key {}, which this gateway does not have",
                                 record.response->sealed->key_id));
}

KeyedFlow::KeyedFlow(GatewayThread& thread, PassThrough& pass_through, Admission& admission, Replier& replier)
    : thread_(thread),
      shared_(thread.shared),
      pass_through_(pass_through),
      sharer_(admission.sharer()),
      buffered_(admission.buffered()),
      limited_(admission.limited()),
      replier_(replier),
      request_(admission.take()),
      id_(request_.admitted.id),
      policy_(request_.route.policy),
      waiting_(shared_.shares, Resource::waiters, sharer_.address(), sharer_.account()) {
  replier_.key_is(id_, request_.admitted.key, key_to_echo(request_));
  if (AccessNote* const note = replier_.client()->note()) note->key = short_hash(id_);
}

Task<void> KeyedFlow::run() {
  int turns = 0;
  for (MonotonicTime before_claim = start_;; before_claim = std::chrono::steady_clock::now()) {
    if (shared_.waits_end.load() && ticket_)
      co_return co_await replier_.refuse(RefusalCode::draining, std::chrono::seconds(1), Fate::still_running);
    // Under too much of everything, what is finished is still answered and what runs may finish.
    const std::optional<Refusal> nothing_new = begin_work(before_claim);
    std::optional<Result<ClaimAnswer>> asked;
    if (nothing_new) {
      asked = co_await find();
    } else {
      ClaimRequest wanted = claim_for(shared_, request_);
      shared_.live_calls.renew_after_a_pause(shared_.store);
      asked = co_await await_store<ClaimAnswer>(
          thread_.loop, [&](auto done) { shared_.store.claim(std::move(wanted), std::move(done)); });
      shared_.metrics.claim_seconds.Observe(seconds_since(before_claim));
      check_claim(*asked);
      note_step(replier_.trace(), "claim", before_claim, asked->ok() ? std::string_view() : asked->fault().message);
    }
    const Result<ClaimAnswer>& answer = *asked;
    if (!answer) {
      if (nothing_new) co_await replier_.refuse(*nothing_new);
      if (!nothing_new) co_await answer_store_fault(answer.fault());
      co_return;
    }
    known_ = true;
    const Decision decision = decide(policy_, request_.admitted.fingerprint, *answer);
    if (const auto* claimed = std::get_if<Claimed>(&*answer)) {
      begin_execution(*claimed, decision.verdict);
      if (!execution_) co_return co_await execute_later(*claimed, before_claim, decision.verdict);
      const Execution::End end = co_await execution_->run(before_claim, decision.verdict);
      if (end == Execution::End::lost) co_await answer_from_record();
      co_return;
    }
    const Found& found = std::get<Found>(*answer);
    count_retry(found, decision.verdict, before_claim);
    work_.give_up();
    if (nothing_new && needs_new_work(decision, found, limited_))
      co_return co_await refuse_new_work(*nothing_new, found);
    if (request_.answer_later && (decision.verdict == Verdict::replay || decision.verdict == Verdict::in_progress)) {
      const std::string url = status_url_of_request();
      co_return co_await replier_.send_accepted(url, decision.age);
    }
    if (decision.verdict == Verdict::replay && policy_.rate_exempts_replays && limited_.bucket) {
      shared_.rates.give_back(*limited_.bucket, limited_.rate);
    }
    auto settled = replier_.answer_settled(request_.route, buffered_, decision.verdict, *found.record);
    if (settled) co_return co_await *std::move(settled);
    Next next = Next::nothing;
    if (decision.verdict == Verdict::hold) {
      next = co_await hold(*found.record);
      if (next == Next::claim && ++turns == kTurnsMax)
        co_return co_await replier_.refuse(RefusalCode::in_progress, std::chrono::seconds(1));
    } else {
      next = co_await wait(decision, *found.record);
    }
    if (next == Next::nothing) co_return;
  }
}

std::optional<Refusal> KeyedFlow::begin_work(MonotonicTime now) {
  if (limited_.refusal) return limited_.refusal;
  return work_.begin(shared_, request_.route, sharer_, buffered_, now);
}

void KeyedFlow::check_claim(Result<ClaimAnswer>& answer) {
  const auto* const found = answer ? std::get_if<Found>(&*answer) : nullptr;
  if (found == nullptr) return;
  known_ = true;
  if (const Status plain = readable(*found->record); !plain) answer = plain.fault();
}

// Without leave to begin, the record is only read: a fault where there is none.
Task<Result<ClaimAnswer>> KeyedFlow::find() {
  Result<std::optional<Found>> found = co_await thread_.find(id_, Interest::none);
  if (!found) {
    shared_.metrics.store_faults.Increment();
    co_return std::move(found).fault();
  }
  if (!found->has_value()) co_return unavailable("nothing is known of this key");
  trust_owner_here(shared_, id_, **found, policy_.lease);
  if (const Status plain = readable(*(*found)->record); !plain) co_return plain.fault();
  co_return ClaimAnswer(**std::move(found));
}

void KeyedFlow::count_retry(const Found& found, Verdict verdict, MonotonicTime now) {
  if (std::exchange(retry_counted_, true)) return;
  shared_.key_activity.saw(id_, activity_of(verdict), std::chrono::system_clock::now());
  if (found.record->fingerprint != request_.admitted.fingerprint) return;
  replier_.metrics().retries.Increment();
  shared_.storms.retried(id_, request_.route.state->number, now);
}

void KeyedFlow::begin_execution(const Claimed& claimed, Verdict verdict) {
  ticket_.reset();
  waiting_.let_go();
  count_growth(shared_, sharer_, claim_bytes(request_));
  replier_.count(to_string(verdict));
  replier_.fence_is(claimed.fence);
  replier_.audit(claimed.took_over ? "taken_over" : "claimed", to_string(verdict), 0);
  if (!request_.answer_later) execution_.emplace(thread_, request_, claimed, replier_, sharer_, buffered_, work_);
}

// The claim is durable, so the promise can be kept: by the operation that goes on, or after a crash by a retry.
Task<void> KeyedFlow::execute_later(const Claimed& claimed, MonotonicTime before_claim, Verdict verdict) {
  auto detached = std::make_unique<Detached>(thread_, request_, replier_, sharer_, limited_, work_, claimed);
  spawn(run_detached(std::move(detached), before_claim, verdict));
  const std::string url = status_url_of_request();
  co_await replier_.send_accepted(url, Millis(0));
}

// Abandoned, and this policy does not execute twice. The first request to find it says so in the record. If the record
// was settled in between, that counts.
Task<KeyedFlow::Next> KeyedFlow::hold(const Record& abandoned) {
  const Ownership found{id_, abandoned.fence, abandoned.claimed_by};
  const Result<FenceAnswer> held = co_await await_store<FenceAnswer>(
      thread_.loop, [&](auto done) { shared_.store.hold(found, Holder::finder, std::move(done)); });
  if (!held) {
    co_await answer_store_fault(held.fault());
    co_return Next::nothing;
  }
  replier_.count("hold");
  if (*held == FenceAnswer::done) {
    shared_.log.warning("held", {{"key", short_hash(id_)}, {"route", request_.route.name}, {"reason", "abandoned"}});
    shared_.waiters.notify(id_);
    replier_.fence_is(abandoned.fence);
    replier_.audit("held", "hold", 0);
  }
  co_return Next::claim;
}

Task<KeyedFlow::Next> KeyedFlow::wait(const Decision& decision, const Record& record) {
  const MonotonicTime now = std::chrono::steady_clock::now();
  const MonotonicTime wait_until = start_ + policy_.wait;
  const bool may_wait = policy_.wait.count() > 0 && now < wait_until && !shared_.waits_end.load();
  if (may_wait && !ticket_ && (waiting_.held() > 0 || waiting_.try_add(1) == Grant::given)) {
    ticket_ = shared_.waiters.join(id_, thread_.loop, policy_.max_waiters);
  }
  if (!may_wait || !ticket_) {
    co_await replier_.refuse_in_progress(id_, decision, record);
    co_return Next::nothing;
  }
  // The lease may run out before the wait does: then the next claim takes over or holds.
  if (co_await still_in_progress())
    co_await ticket_->wait_until(std::min(wait_until, now + decision.lease_left + kTimerTick));
  co_return Next::claim;
}

// Looks again, now that the completion would wake us, also one by another gateway.
Task<bool> KeyedFlow::still_in_progress() {
  const Result<std::optional<Found>> found = co_await thread_.find(id_, Interest::settling);
  if (!found || !found->has_value()) co_return false; // the next claim says what it is
  const Found& now = **found;
  co_return now.record->state == RecordState::in_progress && !now.record->lease_over(now.now);
}

Task<void> KeyedFlow::answer_from_record() {
  const Result<std::optional<Found>> found = co_await thread_.find(id_, Interest::none);
  if (!found || !found->has_value() || !readable(*(*found)->record))
    co_return co_await replier_.refuse(RefusalCode::record_not_written, std::chrono::seconds(1));
  const Record& record = *(*found)->record;
  const Decision decision = decide(policy_, request_.admitted.fingerprint, ClaimAnswer(**found));
  const bool unknown = decision.verdict == Verdict::mismatch || decision.verdict == Verdict::hold;
  auto settled =
      replier_.answer_settled(request_.route, buffered_, unknown ? Verdict::indeterminate : decision.verdict, record);
  if (settled) {
    co_await *std::move(settled);
  } else {
    co_await replier_.refuse_in_progress(id_, decision, record);
  }
}

Task<void> KeyedFlow::refuse_new_work(Refusal refusal, const Found& found) {
  const bool over = found.record->lease_over(found.now) || shared_.owner_is_gone(id_, *found.record);
  refusal.fate = over ? Fate::maybe_executed : Fate::still_running;
  co_await replier_.refuse(refusal);
}

Task<void> KeyedFlow::answer_store_fault(const Fault& fault) {
  shared_.metrics.store_faults.Increment();
  shared_.log.seldom(LogLevel::error, "store_fault", request_.route.name,
                     {{"key", short_hash(id_)}, {"route", request_.route.name}, {"reason", fault.message}});
  work_.give_up();
  // What cannot be read is there: it may be an answer.
  known_ = known_ || fault.kind == FaultKind::corrupt;
  if (!known_ && policy_.on_store_error == OnStoreError::bypass) {
    replier_.count("bypass");
    replier_.audit("bypassed", "bypass", 0);
    Headers marks;
    marks.add("Oncekey-Bypassed", "true");
    co_await pass_through_.run(*replier_.client(), request_.route, sharer_, marks, &request_.body);
    co_return;
  }
  // An owner that was known before may have executed by now.
  const Fate fate = known_ ? Fate::maybe_executed : Fate::by_code;
  co_await replier_.refuse(RefusalCode::store_unavailable, std::chrono::seconds(1), fate);
}

// The record goes by the normal path, and so does its URL.
std::string KeyedFlow::status_url_of_request() const {
  const NormalPath path(request_.head.path());
  return status_url(request_.head.method, path.text_with_slashes(), request_.admitted.key);
}

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
      thread.loop, [&](auto done) { shared.store.claim(std::move(wanted), std::move(done)); });
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
  OwnedKey key(thread, request.admitted.id, *claimed, policy.lease);
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
