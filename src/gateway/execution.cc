// The owner's side of a request: call the upstream once, settle the key, answer when the record is durable.
#include "core/settle.h"
#include "core/status_url.h"
#include "gateway/compression.h"
#include "gateway/gateway.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oncekey {

// What came back from the upstream, or why nothing did.
struct Gateway::Called {
  CallError error = CallError::none;
  std::string reason;      // for the log
  StoredResponse response; // whole unless `rest` is set
  // The body is longer than may be kept: `response.body` is its beginning, `rest` the call that has the rest.
  bool longer = false;
  std::unique_ptr<UpstreamCall> rest;
  std::optional<std::uint64_t> length; // as announced
};

namespace {

// Answers up to here are held and kept also beyond limits.max_buffered_bytes: few need more, and a client that lost its
// answer has nothing but the kept one. max_upstream_connections bounds what that comes to.
constexpr std::size_t kAlwaysKeptBytes = 64u << 10;

// Kept whatever room the store has: StoreRoom::kEndingBytes covers it.
constexpr std::size_t kWithinEndingBytes = 1024;

std::string probe_target(const Probe& probe, std::string_view key) {
  static constexpr std::string_view kPlaceholder = "{key}";
  std::string target = probe.target_template;
  const std::string encoded = percent_encoded(key);
  for (std::size_t at = target.find(kPlaceholder); at != std::string::npos;
       at = target.find(kPlaceholder, at + encoded.size())) {
    target.replace(at, kPlaceholder.size(), encoded);
  }
  return target;
}

class InFlight {
 public:
  explicit InFlight(prometheus::Gauge& gauge) : gauge_(gauge) { gauge_.Increment(); }
  ~InFlight() { gauge_.Decrement(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

 private:
  prometheus::Gauge& gauge_;
};

bool takes_key_from_its_header(const Policy& policy) {
  return std::any_of(policy.key_from.begin(), policy.key_from.end(), [](const KeySource& source) {
    return source.kind == KeySource::Kind::header && equal_ignoring_case(source.name, "Idempotency-Key");
  });
}

std::chrono::seconds whole_seconds(Millis duration) {
  return std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(duration));
}

// The same answer, known to have been given and not kept.
StoredResponse without_body(const Reply& reply) {
  StoredResponse marker;
  marker.status = reply.status;
  marker.reason = reply.reason;
  Sha256 hash;
  hash.update(reply.body);
  marker.omitted = OmittedBody{reply.body.size(), BodyHash{hash.finish()}, true};
  return marker;
}

} // namespace

Outcome outcome_of(CallError error, int status, const Headers& headers) {
  switch (error) {
    case CallError::none:
      return Answered{status, headers};
    case CallError::not_sent:
    case CallError::full:
      return NotSent{};
    case CallError::broken:
    case CallError::timed_out:
      return Unknown{};
    case CallError::unusable:
      return Unusable{status, headers};
  }
  return Unknown{};
}

Task<Gateway::Attempt> Gateway::execute(KeyedRequest& request, const Claimed& claimed, MonotonicTime before_claim,
                                        Verdict verdict) {
  const InFlight in_flight(shared_.metrics.in_flight);
  const Ownership owner{request.admitted.id, claimed.fence, claimed.token};
  request.took_over = claimed.took_over;
  if (claimed.took_over) {
    shared_.metrics.takeovers.Increment();
    shared_.log.warning("takeover",
                        {{"key", short_hash(owner.id)}, {"route", request.route.name}, {"fence", owner.fence}});
  }
  // In the list of live calls before the look at the clock: a claim that did not find us there came before it, and if
  // it took over, the renewal says so.
  request.keeper.emplace(shared_.store, shared_.live_calls, owner, request.policy().lease, timers_);
  // A claim that took long may have used up its own lease: what is left must be enough to start with.
  const bool took_long = std::chrono::steady_clock::now() - before_claim >= request.policy().lease / 2;
  if (took_long && !co_await renew(request, owner)) co_return Attempt::lost;

  if (verdict == Verdict::probe) {
    Called probed;
    co_await probe_upstream(request, owner, probed);
    const int status = probed.response.status;
    if (probed.error != CallError::none && probed.error != CallError::unusable) {
      // No answer to the probe says nothing: the claim stays abandoned, and the next retry asks again.
      shared_.log.seldom(LogLevel::warning, "probe_failed", request.route.name,
                         {{"key", short_hash(owner.id)}, {"route", request.route.name}, {"reason", probed.reason}});
      co_await release(request, owner);
      const bool asked = probed.error == CallError::broken || probed.error == CallError::timed_out;
      const Fate fate = asked ? Fate::not_told : Fate::maybe_executed;
      co_await send_refusal(request, RefusalCode::upstream_unreachable, std::chrono::seconds(1), fate);
      co_return Attempt::answered;
    }
    if (status / 100 == 2 && !probed.longer && probed.error == CallError::none) {
      co_return co_await keep_and_answer(request, owner, std::move(probed.response));
    }
    if (status != 404) {
      shared_.log.warning("held", {{"key", short_hash(owner.id)},
                                   {"route", request.route.name},
                                   {"reason", fmt::format("probe answered {} {}", status, probed.reason)}});
      co_await hold(request, owner);
      co_await send_refusal(request, RefusalCode::indeterminate);
      co_return Attempt::answered;
    }
    // The probe took its time: the call must not start on a lease that was lost meanwhile.
    if (!co_await renew(request, owner)) co_return Attempt::lost;
  }

  Called called;
  co_await call_upstream(request, owner, called);
  co_return co_await settle_and_answer(request, owner, called);
}

Task<bool> Gateway::renew(KeyedRequest& request, const Ownership& owner) {
  const Result<FenceAnswer> renewed = co_await await_store<FenceAnswer>(
      wakeups_, [&](auto done) { shared_.store.renew(owner, request.policy().lease, std::move(done)); });
  const bool ours = renewed.ok() && *renewed == FenceAnswer::done;
  if (!ours) {
    shared_.metrics.lost_leases.Increment();
    // Nothing was sent. If it is still ours after all, it need not stay claimed.
    co_await release(request, owner);
  }
  co_return ours;
}

void Gateway::give_up(KeyedRequest& request, const Ownership& owner) {
  request.keeper.reset();
  shared_.given_up.add(owner, request.policy().lease, std::chrono::steady_clock::now());
}

// Whoever settles a key stops renewing it first: a renewal behind the release would claim it again. A release or hold
// that fails leaves the key claimed until its lease is over, and then to on_abandoned.
Task<void> Gateway::release(KeyedRequest& request, const Ownership& owner) {
  request.keeper.reset();
  const Result<FenceAnswer> released =
      co_await await_store<FenceAnswer>(wakeups_, [&](auto done) { shared_.store.release(owner, std::move(done)); });
  if (!released) give_up(request, owner);
  shared_.waiters.notify(owner.id);
}

Task<void> Gateway::hold(KeyedRequest& request, const Ownership& owner) {
  request.keeper.reset();
  const Result<FenceAnswer> held = co_await await_store<FenceAnswer>(
      wakeups_, [&](auto done) { shared_.store.hold(owner, Holder::owner, std::move(done)); });
  if (!held) give_up(request, owner);
  shared_.waiters.notify(owner.id);
}

UpstreamRequest Gateway::to_upstream(const KeyedRequest& request, const Ownership& owner) const {
  // A replay must suit every client, so that the answer is asked for without a content coding.
  std::vector<std::string_view> replaced{"Accept-Encoding"};
  // The upstream sees the key that counts, wherever it came from.
  const bool as_sent = request.head.headers.has("Idempotency-Key") && takes_key_from_its_header(request.policy());
  const bool add_key = !as_sent && !request.admitted.key.empty();
  if (add_key) replaced.push_back("Idempotency-Key");
  if (request.answer_later) replaced.push_back("Prefer");
  UpstreamRequest out = forward(request.head, request.from, shared_.self, replaced);
  out.headers.add("Accept-Encoding", "identity");
  if (add_key) out.headers.add("Idempotency-Key", request.admitted.key);
  if (request.answer_later) {
    const std::string preferences = other_preferences(request.head.headers);
    if (!preferences.empty()) out.headers.add("Prefer", preferences);
  }
  out.headers.add("Oncekey-Fence", fmt::format_int(owner.fence).c_str());
  return out;
}

Task<void> Gateway::call_upstream(KeyedRequest& request, const Ownership& owner, Called& called) {
  const MonotonicTime start = std::chrono::steady_clock::now();
  const UpstreamRequest upstream_request = to_upstream(request, owner);
  const bool has_body = request.head.framing != Framing::none || !request.body.empty();
  const Upstream& upstream = request.route.state->upstream;
  auto call = std::make_unique<UpstreamCall>(pool_of(upstream));
  called.error = co_await call->send(upstream_request, has_body ? Framing::length : Framing::none, request.body.size(),
                                     request.body, start + request.policy().upstream_timeout);
  tell_breaker(upstream, request.work.pass, called.error, call->reason());
  if (called.error != CallError::none) {
    called.reason = call->reason();
    co_return;
  }
  co_await collect(request, *call, Relay::yes, called);
  const MonotonicTime end = std::chrono::steady_clock::now();
  request.metrics.upstream_seconds.Observe(std::chrono::duration<double>(end - start).count());
  if (called.error == CallError::none) request.metrics.usual_duration().note(end - start);
  if (request.client != nullptr && request.client->note() != nullptr) request.client->note()->upstream = end - start;
  if (called.longer) called.rest = std::move(call);
}

Task<void> Gateway::probe_upstream(KeyedRequest& request, const Ownership& owner, Called& called) {
  const Probe& probe = *request.policy().probe;
  UpstreamRequest question = to_upstream(request, owner);
  question.method = probe.method;
  question.target = probe_target(probe, request.admitted.key);
  Headers headers;
  for (std::size_t i = 0; i < question.headers.size(); ++i) {
    const Field field = question.headers[i];
    // The question has no body, and must not be taken for a retry of the request it asks about.
    if (starts_with_ignoring_case(field.name, "Content-") || equal_ignoring_case(field.name, "Idempotency-Key"))
      continue;
    headers.add(field.name, field.value);
  }
  question.headers = std::move(headers);
  const Upstream& upstream = request.route.state->upstream;
  UpstreamCall call(pool_of(upstream));
  called.error = co_await call.send(question, Framing::none, 0, {},
                                    std::chrono::steady_clock::now() + request.policy().upstream_timeout);
  tell_breaker(upstream, request.work.pass, called.error, call.reason());
  if (called.error != CallError::none) {
    called.reason = call.reason();
    co_return;
  }
  co_await collect(request, call, Relay::no, called);
}

// Reads the response: the head, then the body as far as it may be kept.
Task<void> Gateway::collect(KeyedRequest& request, UpstreamCall& call, Relay relay, Called& called) {
  ResponseHead head;
  do {
    called.error = co_await call.read_head(head);
    if (called.error != CallError::none) {
      called.reason = call.reason();
      if (called.error == CallError::unusable) called.response.status = head.status;
      co_return;
    }
    // 100 answers an Expect, and that was answered here already.
    if (relay == Relay::yes && request.client != nullptr && head.status < 200 && head.status != 100) {
      co_await request.client->send_interim(head.status, head.reason, end_to_end(head));
    }
  } while (head.status < 200);

  called.response.status = head.status;
  called.response.reason = std::move(head.reason);
  called.response.headers = end_to_end(head);
  if (head.framing == Framing::none && (request.head.method == "HEAD" || head.status == 304)) {
    // It describes a body that is not sent, and belongs to the answer.
    if (const auto said = head.headers.get("Content-Length")) called.response.headers.add("Content-Length", *said);
  }
  if (head.framing == Framing::until_close && relay == Relay::yes && request.policy().require_framed_answers) {
    called.error = CallError::broken;
    called.reason = "the answer ends with its connection, and require_framed_answers is set";
    co_return;
  }
  const std::uint64_t most = request.policy().max_stored_body;
  if (head.framing == Framing::length) called.length = head.content_length;
  const std::uint64_t expected = std::min(called.length.value_or(most), most);
  for (;;) {
    std::string_view piece;
    called.error = co_await call.read_piece(piece);
    if (called.error != CallError::none) {
      called.reason = call.reason();
      co_return;
    }
    if (piece.empty()) co_return;
    // Where memory or the store has no room for a long answer, it goes through like one that is too long to keep, also
    // when there is no client to go to: an answer for later is not worth more than what runs now.
    const std::size_t had = called.response.body.capacity();
    const bool fits = grow_body(called.response.body, piece.size(), expected,
                                [&](std::size_t growth) { return request.buffered.try_hold(growth); });
    called.response.body.append(piece);
    const bool streams = relay == Relay::yes && !fits && called.response.body.size() > kAlwaysKeptBytes;
    // The first few bytes are within what the claim has set aside.
    const bool no_room =
        relay == Relay::yes && called.response.body.size() > kWithinEndingBytes && !shared_.room.for_body(piece.size());
    if (called.response.body.size() > most || streams || no_room) {
      called.longer = true;
      co_return;
    }
    if (!fits) request.buffered.hold(called.response.body.capacity() - had);
    if (request.work.ending) request.work.ending->grow(piece.size());
  }
}

Task<Gateway::Attempt> Gateway::settle_and_answer(KeyedRequest& request, const Ownership& owner, Called& called) {
  if (called.rest) co_return co_await stream_long_answer(request, owner, called);

  const Policy& policy = request.policy();
  const Settlement settlement =
      settle(policy, outcome_of(called.error, called.response.status, called.response.headers));
  if (called.error != CallError::none) {
    shared_.log.seldom(LogLevel::warning, "upstream_failed", request.route.name,
                       {{"key", short_hash(owner.id)},
                        {"route", request.route.name},
                        {"settlement", to_string(settlement)},
                        {"reason", called.reason}});
  }

  switch (settlement) {
    case Settlement::keep:
      co_return co_await keep_and_answer(request, owner, std::move(called.response));
    case Settlement::executed:
      co_return co_await note_executed(request, owner, called);
    case Settlement::release:
      // The answer goes out all the same if this fails: nothing about it is promised to anybody.
      co_await release(request, owner);
      break;
    case Settlement::hold:
      co_await hold(request, owner);
      break;
    case Settlement::abandon:
      give_up(request, owner);
      break;
  }

  const Fate earlier = request.took_over ? Fate::maybe_executed : Fate::as_the_code_says;
  switch (called.error) {
    case CallError::none: {
      const Reply reply = first_answer(policy, called.response, request.context(), Kept::no);
      if (request.client != nullptr) co_await send_answer(*request.client, policy, request.buffered, reply, reply.body);
      break;
    }
    case CallError::not_sent:
      co_await send_refusal(request, RefusalCode::upstream_unreachable, std::chrono::seconds(1), earlier);
      break;
    case CallError::full:
      co_await send_refusal(request, RefusalCode::overloaded, std::chrono::seconds(1), earlier);
      break;
    case CallError::broken:
    case CallError::timed_out: {
      const RefusalCode code =
          called.error == CallError::broken ? RefusalCode::upstream_unknown : RefusalCode::upstream_timeout;
      // Held keys are for an operator: no moment at which retrying helps can be named.
      std::optional<std::chrono::seconds> retry_after;
      if (settlement == Settlement::abandon) retry_after = whole_seconds(policy.lease);
      const Fate fate = settlement == Settlement::hold ? Fate::held : Fate::as_the_code_says;
      co_await send_refusal(request, code, retry_after, fate);
      break;
    }
    case CallError::unusable:
      // It came whole as far as it was read, so that there is no lease to wait for.
      co_await send_unusable(request, called, settlement == Settlement::hold ? Fate::held : Fate::released);
      break;
  }
  co_return Attempt::answered;
}

// The answer came and cannot be kept. That it did is durable before the client hears of it, so that a retry is refused
// and never executed.
Task<Gateway::Attempt> Gateway::note_executed(KeyedRequest& request, const Ownership& owner, const Called& called) {
  StoredResponse noted;
  noted.status = called.response.status;
  noted.omitted = OmittedBody{};
  const Result<FenceAnswer> written = co_await complete(owner, std::move(noted));
  if (!written) {
    give_up(request, owner);
    co_await send_refusal(request, RefusalCode::record_not_written, whole_seconds(request.policy().lease));
    co_return Attempt::answered;
  }
  if (*written == FenceAnswer::lost) {
    shared_.metrics.lost_leases.Increment();
    co_return Attempt::lost;
  }
  shared_.waiters.notify(owner.id);
  co_await send_unusable(request, called, Fate::as_the_code_says);
  co_return Attempt::answered;
}

Task<void> Gateway::send_unusable(KeyedRequest& request, const Called& called, Fate fate) {
  const int status = called.response.status;
  std::string what = status == 0 ? fmt::format("The answer: {}.", called.reason)
                                 : fmt::format("The answer has status {}: {}.", status, called.reason);
  const Refusal refusal{RefusalCode::answer_unusable, std::move(what), {}, request.admitted.key, {}, fate};
  co_await send_refusal(request, refusal);
}

Task<Gateway::Attempt> Gateway::keep_and_answer(KeyedRequest& request, const Ownership& owner,
                                                StoredResponse response) {
  const Reply reply = first_answer(request.policy(), response, request.context(), Kept::yes);
  const std::size_t bytes = response.body.size() + response.headers.lines().size();
  Result<FenceAnswer> written =
      co_await complete(owner, to_store(request.policy(), std::move(response), request.context()));
  if (!written && bytes > kWithinEndingBytes) {
    // The body may be what there is no room for. That it was executed is worth writing down without it.
    StoredResponse marker = without_body(reply);
    written = co_await complete(owner, std::move(marker));
  }
  if (!written) {
    give_up(request, owner);
    co_await send_refusal(request, RefusalCode::record_not_written, whole_seconds(request.policy().lease));
    co_return Attempt::answered;
  }
  if (*written == FenceAnswer::lost) {
    shared_.metrics.lost_leases.Increment();
    shared_.log.warning("lease_lost",
                        {{"key", short_hash(owner.id)}, {"route", request.route.name}, {"fence", owner.fence}});
    co_return Attempt::lost;
  }
  shared_.metrics.stored_bytes.Increment(static_cast<double>(bytes));
  count_growth(request.sharer, bytes);
  shared_.waiters.notify(owner.id);
  if (request.client != nullptr)
    co_await send_answer(*request.client, request.policy(), request.buffered, reply, reply.body);
  co_return Attempt::answered;
}

Task<Result<FenceAnswer>> Gateway::complete(const Ownership& owner, StoredResponse response) {
  const MonotonicTime start = std::chrono::steady_clock::now();
  Result<FenceAnswer> written = co_await await_store<FenceAnswer>(
      wakeups_, [&](auto done) { shared_.store.complete(owner, std::move(response), std::move(done)); });
  shared_.metrics.complete_seconds.Observe(seconds_since(start));
  if (!written) {
    shared_.metrics.store_faults.Increment();
    shared_.log.error("record_not_written", {{"key", short_hash(owner.id)}, {"reason", written.fault().message}});
  }
  co_return written;
}

// An answer too long to keep goes to the client as it comes. That it exists is durable before its first byte leaves, so
// that a retry is refused and never executed; its length and hash follow at the end.
Task<Gateway::Attempt> Gateway::stream_long_answer(KeyedRequest& request, const Ownership& owner, Called& called) {
  const Policy& policy = request.policy();
  Exchange* const client = request.client;
  const std::string beginning = std::move(called.response.body);
  called.response.body.clear();
  const Settlement settlement = settle(policy, Answered{called.response.status, called.response.headers});
  const bool kept = settlement == Settlement::keep;
  Reply reply = first_answer(policy, called.response, request.context(), kept ? Kept::yes : Kept::no);
  if (policy.compress) add_vary(reply.headers); // as the answers that are kept have it; this one goes as it comes
  StoredResponse marker = to_store(policy, called.response, request.context());
  marker.omitted = OmittedBody{};
  if (kept) {
    const Result<FenceAnswer> written = co_await complete(owner, marker);
    if (!written) {
      give_up(request, owner);
      co_await send_refusal(request, RefusalCode::record_not_written, whole_seconds(policy.lease));
      co_return Attempt::answered;
    }
    if (*written == FenceAnswer::lost) co_return Attempt::lost;
    shared_.waiters.notify(owner.id);
  }

  // A client that goes away does not end this: the hash wants the whole body.
  if (client != nullptr) (void)co_await client->send_head(reply.status, reply.reason, reply.headers, called.length);
  Sha256 hash;
  std::uint64_t length = 0;
  std::string_view piece = beginning;
  CallError error = CallError::none;
  while (error == CallError::none && !piece.empty()) {
    hash.update(piece);
    length += piece.size();
    if (client != nullptr) (void)co_await client->send_piece(piece);
    // The answer has begun: from here on it may take as long as its client does, as long as it moves.
    called.rest->deadline(std::chrono::steady_clock::now() + policy.upstream_timeout);
    error = co_await called.rest->read_piece(piece);
  }
  if (error != CallError::none) {
    shared_.log.seldom(
        LogLevel::warning, "upstream_failed", request.route.name,
        {{"key", short_hash(owner.id)}, {"route", request.route.name}, {"reason", called.rest->reason()}});
    if (client != nullptr) client->abort();
  } else if (client != nullptr) {
    (void)co_await client->send_end();
  }

  if (kept && error == CallError::none) {
    marker.omitted = OmittedBody{length, BodyHash{hash.finish()}, true};
    (void)co_await complete(owner, std::move(marker));
  } else if (!kept) {
    // Not to be kept, whether whole or not: an answer that broke off is an unknown outcome like any other.
    const Settlement end = settle(policy, outcome_of(error, called.response.status, called.response.headers));
    if (end == Settlement::release) co_await release(request, owner);
    if (end == Settlement::hold) co_await hold(request, owner);
    if (end == Settlement::abandon) give_up(request, owner);
  }
  co_return Attempt::answered;
}

} // namespace oncekey
