#include "gateway/execution.h"

#include "core/status_url.h"
#include "gateway/access_log.h"
#include "gateway/compression.h"
#include "gateway/tracing.h"

namespace oncekey {
namespace {

// Answers up to here are held and kept also beyond limits.max_buffered_bytes: few need more, and a client that lost its
// answer has nothing but the kept one. max_upstream_connections bounds what that comes to.
constexpr std::size_t kAlwaysKeptBytes = 64u << 10;

// Kept whatever room the store has: StoreRoom::kEndingBytes covers it.
constexpr std::size_t kWithinEndingBytes = 1024;

std::string probe_target(const Question& probe, std::string_view key) {
  static constexpr std::string_view kPlaceholder = "{key}";
  std::string target = probe.target;
  const std::string encoded = percent_encoded(key);
  for (std::size_t at = target.find(kPlaceholder); at != std::string::npos;
       at = target.find(kPlaceholder, at + encoded.size())) {
    target.replace(at, kPlaceholder.size(), encoded);
  }
  return target;
}

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

Execution::Execution(GatewayThread& thread, const KeyedRequest& request, const Claimed& claimed, Replier& replier,
                     const Sharer& sharer, BufferedBytes& buffered, NewWork& work)
    : thread_(thread),
      shared_(thread.shared),
      request_(request),
      policy_(request.route.policy),
      upstream_(request.route.state->upstream),
      replier_(replier),
      sharer_(sharer),
      buffered_(buffered),
      work_(work),
      executing_(shared_.executing),
      key_(thread, request.admitted.id, claimed, policy_.lease),
      took_over_(claimed.took_over) {}

Task<Execution::End> Execution::run(MonotonicTime before_claim, Verdict verdict) {
  if (took_over_) {
    shared_.metrics.takeovers.Increment();
    shared_.log.warning(
        "takeover",
        {{"key", short_hash(key_.owner().id)}, {"route", request_.route.name}, {"fence", key_.owner().fence}});
  }
  // In the list of live calls before the look at the clock: a claim that did not find us there came before it, and if
  // it took over, the renewal says so.
  key_.keep();
  // A claim that took long may have used up its own lease: what is left must be enough to start with.
  const bool took_long = std::chrono::steady_clock::now() - before_claim >= policy_.lease / 2;
  if (took_long && !co_await key_.renew()) co_return End::lost;
  if (verdict == Verdict::probe) {
    if (const std::optional<End> end = co_await probe()) co_return *end;
    // The probe took its time: the call must not start on a lease that was lost meanwhile.
    if (!co_await key_.renew()) co_return End::lost;
  }

  const MonotonicTime start = std::chrono::steady_clock::now();
  key_.forwarded();
  const UpstreamRequest request = forwarded(); // not made inside the co_await expression (see replier.h)
  co_await call_upstream(request, start);
  if (!answer_.longer) call_.reset(); // its connection is for others from here on
  note_duration(start);
  co_return co_await settle_and_answer();
}

Task<void> Execution::let_go(Settlement how) {
  // A release without a status says that the request was not sent. An answer that broke off has a status and is no
  // answer.
  const bool answered = answer_.error == CallError::none || answer_.error == CallError::unusable;
  replier_.audit(how == Settlement::release ? "released"
                 : how == Settlement::hold  ? "held"
                                            : "abandoned",
                 to_string(how), how == Settlement::release && answered ? answer_.status : 0);
  return key_.let_go(how);
}

UpstreamRequest Execution::forwarded() const {
  const Headers& headers = request_.head.headers;
  const std::string& key = request_.admitted.key;
  // A replay must suit every client, so that the answer is asked for without a content coding.
  std::vector<std::string_view> replaced{"Accept-Encoding"};
  // The upstream sees the key that counts, wherever it came from.
  const bool as_sent = headers.has("Idempotency-Key") && takes_key_from_its_header(policy_);
  if (!as_sent && !key.empty()) replaced.push_back("Idempotency-Key");
  if (request_.answer_later) replaced.push_back("Prefer");
  const std::string traceparent = traceparent_for_upstream(replier_.trace(), call_span());
  if (!traceparent.empty()) replaced.push_back("traceparent");
  UpstreamRequest out = forward(request_.head, request_.from, shared_.self, replaced);
  out.headers.add("Accept-Encoding", "identity");
  if (!traceparent.empty()) out.headers.add("traceparent", traceparent);
  if (!as_sent && !key.empty()) out.headers.add("Idempotency-Key", key);
  const std::string preferences = request_.answer_later ? other_preferences(headers) : std::string();
  if (!preferences.empty()) out.headers.add("Prefer", preferences);
  out.headers.add("Oncekey-Fence", fmt::format_int(key_.owner().fence).c_str());
  return out;
}

Task<void> Execution::call_upstream(const UpstreamRequest& request, MonotonicTime start) {
  UpstreamCall& call = call_.emplace(thread_.pool_of(upstream_));
  WholeAnswer& out = answer_;
  const std::string_view body = probing_ ? std::string_view{} : request_.body;
  const bool has_body = !probing_ && (request_.head.framing != Framing::none || !body.empty());
  const MonotonicTime due = start + policy_.upstream_timeout;
  out.error = co_await call.send(request, has_body ? Framing::length : Framing::none, body.size(), body, due);
  out.sent = out.error == CallError::none;
  work_.sent(shared_, upstream_, out.error, call.reason());
  Exchange* const client = probing_ ? nullptr : replier_.client();
  ResponseHead head;
  while (out.error == CallError::none && head.status < 200) {
    out.error = co_await call.read_head(head);
    // 100 answers an Expect, and that was answered here already.
    const bool interim = out.error == CallError::none && head.status < 200 && head.status != 100;
    if (interim && client != nullptr) co_await client->send_interim(head.status, head.reason, end_to_end(head.headers));
  }
  if (out.error != CallError::none) {
    out.why = call.reason();
    if (out.error == CallError::unusable) out.status = head.status;
    co_return;
  }

  out.status = head.status;
  std::string described;
  if (head.framing == Framing::none && (request.method == "HEAD" || head.status == 304)) {
    // It describes a body that is not sent, and belongs to the answer.
    described = head.headers.get("Content-Length").value_or(std::string_view{});
  }
  out.headers = end_to_end(std::move(head.headers));
  if (!described.empty()) out.headers.add("Content-Length", described);
  out.reason = std::move(head.reason);
  if (head.framing == Framing::until_close && policy_.require_framed_answers && !probing_) {
    out.error = CallError::broken;
    out.why = "the answer ends with its connection, and require_framed_answers is set";
    co_return;
  }
  if (head.framing == Framing::length) out.length = head.content_length;
  const std::uint64_t expected = std::min(out.length.value_or(policy_.max_stored_body), policy_.max_stored_body);
  for (std::string_view piece; !out.longer;) {
    out.error = co_await call.read_piece(piece);
    if (out.error != CallError::none) out.why = call.reason();
    if (out.error != CallError::none || piece.empty()) co_return;
    out.longer = !take(piece, expected) || out.body.size() > policy_.max_stored_body;
  }
}

// Where memory or the store has no room for a long answer, it goes through like one that is too long to keep, also when
// there is no client to go to: an answer for later is not worth more than what runs now.
bool Execution::take(std::string_view piece, std::uint64_t expected) {
  std::string& body = answer_.body;
  const std::size_t had = body.capacity();
  const bool fits =
      grow_body(body, piece.size(), expected, [this](std::size_t growth) { return buffered_.try_hold(growth); });
  body.append(piece);
  if (!probing_) {
    if (!fits && body.size() > kAlwaysKeptBytes) return false;
    // The first few bytes are within what the claim has set aside.
    if (body.size() > kWithinEndingBytes && !shared_.room.for_body(piece.size())) return false;
  }
  if (!fits) buffered_.hold(body.capacity() - had);
  work_.answer_grows(piece.size());
  return true;
}

SpanId Execution::call_span() const {
  const TraceNote* const trace = replier_.trace();
  if (trace == nullptr) return {};
  return upstream_span(shared_.hash, trace->trace, key_.owner().id, key_.owner().fence);
}

void Execution::note_duration(MonotonicTime start) {
  if (replier_.trace() != nullptr) note_step(replier_.trace(), "upstream", start, call_span(), answer_.why);
  if (!answer_.sent) return;
  const auto took = std::chrono::steady_clock::now() - start;
  const double seconds = std::chrono::duration<double>(took).count();
  replier_.metrics().upstream_seconds.Observe(seconds);
  if (request_.trace) replier_.metrics().upstream_exemplars.note(seconds, *request_.trace);
  if (answer_.error == CallError::none) replier_.metrics().usual_duration.note(took);
  Exchange* const client = replier_.client();
  if (client != nullptr && client->note() != nullptr) client->note()->upstream = took;
}

StoredResponse Execution::take_response() {
  return {answer_.status, std::move(answer_.reason), std::move(answer_.headers), std::move(answer_.body), std::nullopt};
}

UpstreamRequest Execution::question() const {
  UpstreamRequest question = forwarded();
  question.method = policy_.probe->method;
  question.target = probe_target(*policy_.probe, request_.admitted.key);
  // The question has no body, and must not be taken for a retry of the request it asks about.
  question.headers = fields_where(question.headers, [](const Field& field) {
    return !starts_with_ignoring_case(field.name, "Content-") && !equal_ignoring_case(field.name, "Idempotency-Key");
  });
  return question;
}

Task<std::optional<Execution::End>> Execution::probe() {
  probing_ = true;
  const UpstreamRequest asked = question();
  co_await call_upstream(asked, std::chrono::steady_clock::now());
  call_.reset();
  probing_ = false;
  const CallError error = answer_.error;
  if (error != CallError::none && error != CallError::unusable) {
    // No answer to the probe says nothing: the claim stays abandoned, and the next retry asks again.
    shared_.log.seldom(LogLevel::warning, "probe_failed", request_.route.name,
                       {{"key", short_hash(key_.owner().id)}, {"route", request_.route.name}, {"reason", answer_.why}});
    co_await let_go(Settlement::release);
    const bool was_asked = error == CallError::broken || error == CallError::timed_out;
    const Fate fate = was_asked ? Fate::not_told : Fate::maybe_executed;
    co_await replier_.refuse(RefusalCode::upstream_unreachable, std::chrono::seconds(1), fate);
    co_return End::answered;
  }
  if (answer_.status / 100 == 2 && !answer_.longer && error == CallError::none) {
    Conclusion kept = conclude_kept(policy_, take_response(), replier_.context());
    co_return co_await keep_and_answer(std::move(kept));
  }
  if (answer_.status != 404) {
    shared_.log.warning("held", {{"key", short_hash(key_.owner().id)},
                                 {"route", request_.route.name},
                                 {"reason", fmt::format("probe answered {} {}", answer_.status, answer_.why)}});
    co_await let_go(Settlement::hold);
    co_await replier_.refuse(RefusalCode::indeterminate);
    co_return End::answered;
  }
  answer_ = {};
  co_return std::nullopt;
}

Task<Execution::End> Execution::settle_and_answer() {
  if (answer_.longer) return stream_long_answer();
  if (answer_.error != CallError::none) return settle_failure();
  Conclusion conclusion = conclude(policy_, take_response(), replier_.context());
  if (conclusion.settlement == Settlement::keep) return keep_and_answer(std::move(conclusion));
  return let_go_and_answer(std::move(conclusion));
}

Task<Execution::End> Execution::keep_and_answer(Conclusion conclusion) {
  const Reply& reply = conclusion.reply;
  const std::size_t bytes = conclusion.stored.body.size() + conclusion.stored.headers.lines().size();
  const MonotonicTime start = std::chrono::steady_clock::now();
  Result<FenceAnswer> written = co_await key_.write(conclusion.stored);
  key_.note_written(written, start);
  note_step(replier_.trace(), "complete", start, written ? std::string_view() : written.fault().message);
  if (!written && bytes > kWithinEndingBytes) {
    // The body may be what there is no room for. That it was executed is worth writing down without it.
    StoredResponse marker = without_body(reply);
    written = co_await key_.complete(std::move(marker));
  }
  if (!written || *written == FenceAnswer::lost) co_return co_await not_written(written);
  shared_.metrics.stored_bytes.Increment(static_cast<double>(bytes));
  count_growth(shared_, sharer_, bytes);
  replier_.audit("completed", {}, reply.status);
  co_await replier_.send_answer(buffered_, reply, reply.body);
  co_return End::answered;
}

Task<Execution::End> Execution::let_go_and_answer(Conclusion conclusion) {
  // The answer goes out all the same if this fails: nothing about it was promised.
  co_await let_go(conclusion.settlement);
  co_await replier_.send_answer(buffered_, conclusion.reply, conclusion.reply.body);
  co_return End::answered;
}

Task<Execution::End> Execution::settle_failure() {
  const CallError error = answer_.error;
  const Settlement settlement = settle(policy_, outcome_of(error, answer_.status, answer_.headers));
  shared_.log.seldom(LogLevel::warning, "upstream_failed", request_.route.name,
                     {{"key", short_hash(key_.owner().id)},
                      {"route", request_.route.name},
                      {"settlement", to_string(settlement)},
                      {"reason", answer_.why}});
  if (settlement == Settlement::executed) co_return co_await note_executed();
  co_await let_go(settlement);

  const bool held = settlement == Settlement::hold;
  const Fate earlier = took_over_ ? Fate::maybe_executed : Fate::by_code;
  switch (error) {
    case CallError::none:
    case CallError::not_sent:
      co_await replier_.refuse(RefusalCode::upstream_unreachable, std::chrono::seconds(1), earlier);
      break;
    case CallError::full:
      co_await replier_.refuse(RefusalCode::overloaded, std::chrono::seconds(1), earlier);
      break;
    case CallError::broken:
    case CallError::timed_out: {
      const RefusalCode code =
          error == CallError::broken ? RefusalCode::upstream_unknown : RefusalCode::upstream_timeout;
      // Held keys are for an operator: no moment at which retrying helps can be named.
      std::optional<std::chrono::seconds> retry_after;
      if (settlement == Settlement::abandon) retry_after = whole_seconds(policy_.lease);
      co_await replier_.refuse(code, retry_after, held ? Fate::held : Fate::by_code);
      break;
    }
    case CallError::unusable:
      // It came whole as far as it was read, so that there is no lease to wait for.
      co_await refuse_unusable(held ? Fate::held : Fate::released);
      break;
  }
  co_return End::answered;
}

// The answer came and cannot be kept. That it did is durable before the client hears of it, so that a retry is refused
// and never executed.
Task<Execution::End> Execution::note_executed() {
  StoredResponse noted;
  noted.status = answer_.status;
  noted.omitted = OmittedBody{};
  const Result<FenceAnswer> written = co_await key_.complete(std::move(noted));
  if (!written || *written == FenceAnswer::lost) co_return co_await not_written(written);
  replier_.audit("completed", {}, answer_.status);
  co_await refuse_unusable(Fate::by_code);
  co_return End::answered;
}

Task<void> Execution::refuse_unusable(Fate fate) {
  const int status = answer_.status;
  std::string what = status == 0 ? fmt::format("The answer: {}.", answer_.why)
                                 : fmt::format("The answer has status {}: {}.", status, answer_.why);
  const Refusal refusal{RefusalCode::answer_unusable, std::move(what), {}, {}, {}, fate};
  co_await replier_.refuse(refusal);
}

Task<Execution::End> Execution::not_written(const Result<FenceAnswer>& written) {
  if (!written) {
    key_.give_up();
    co_await replier_.refuse(RefusalCode::record_not_written, whole_seconds(policy_.lease));
    co_return End::answered;
  }
  shared_.metrics.lost_leases.Increment();
  replier_.audit("lease_lost", {}, 0);
  shared_.log.warning(
      "lease_lost",
      {{"key", short_hash(key_.owner().id)}, {"route", request_.route.name}, {"fence", key_.owner().fence}});
  co_return End::lost;
}

// An answer too long to keep goes to the client as it comes. That it exists is durable before its first byte leaves, so
// that a retry is refused and never executed; its length and hash follow at the end.
Task<Execution::End> Execution::stream_long_answer() {
  const std::string beginning = std::move(answer_.body);
  answer_.body.clear();
  const int status = answer_.status;
  const Headers headers = answer_.headers;
  Conclusion conclusion = conclude(policy_, take_response(), replier_.context());
  Reply& reply = conclusion.reply;
  if (policy_.compress) add_vary(reply.headers); // as the answers that are kept have it; this one goes as it comes
  const bool kept = conclusion.settlement == Settlement::keep;
  OmittedBody& omitted = conclusion.stored.omitted.emplace();
  if (kept) {
    StoredResponse marker = conclusion.stored;
    const Result<FenceAnswer> written = co_await key_.complete(std::move(marker));
    if (!written || *written == FenceAnswer::lost) co_return co_await not_written(written);
    replier_.audit("completed", {}, status);
  }
  const CallError error = co_await relay_long_answer(reply, beginning, omitted);
  if (kept && error == CallError::none) {
    (void)co_await key_.complete(std::move(conclusion.stored));
  } else if (!kept) {
    // Not to be kept, whether whole or not: an answer that broke off is an unknown outcome like any other.
    const Settlement end = settle(policy_, outcome_of(error, status, headers));
    co_await let_go(end);
  }
  co_return End::answered;
}

// A client that goes away does not end this: the hash wants the whole body.
Task<CallError> Execution::relay_long_answer(const Reply& head, std::string_view beginning, OmittedBody& omitted) {
  Exchange* const client = replier_.client();
  if (client != nullptr) (void)co_await client->send_head(head.status, head.reason, head.headers, answer_.length);
  Sha256 hash;
  std::string_view piece = beginning;
  CallError error = CallError::none;
  while (error == CallError::none && !piece.empty()) {
    hash.update(piece);
    omitted.length += piece.size();
    if (client != nullptr) (void)co_await client->send_piece(piece);
    // The answer has begun: from here on it may take as long as its client does, as long as it moves.
    call_->deadline(std::chrono::steady_clock::now() + policy_.upstream_timeout);
    error = co_await call_->read_piece(piece);
  }
  omitted.sha256 = BodyHash{hash.finish()};
  omitted.whole = error == CallError::none;
  if (error != CallError::none) {
    shared_.log.seldom(
        LogLevel::warning, "upstream_failed", request_.route.name,
        {{"key", short_hash(key_.owner().id)}, {"route", request_.route.name}, {"reason", call_->reason()}});
    if (client != nullptr) client->abort();
  } else if (client != nullptr) {
    (void)co_await client->send_end();
  }
  co_return error;
}

} // namespace oncekey
