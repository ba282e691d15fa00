#include "gateway/tracing.h"

#include "base/crypto.h"
#include "gateway/access_log.h"

#include <random>

namespace oncekey {
namespace {

std::uint64_t random_bits() {
  thread_local std::mt19937_64 generator(random_u64());
  return generator();
}

template <std::size_t N>
void fill_with_chance(std::array<std::uint8_t, N>& bytes) {
  for (std::size_t i = 0; i < N; i += 8) {
    const std::uint64_t bits = random_bits() | 1; // never all zeros
    std::memcpy(bytes.data() + i, &bits, 8);
  }
}

SpanKind kind_of(std::string_view step) { return step == "upstream" ? SpanKind::client : SpanKind::internal; }

// A span for each part of the request. `instant` gives the time of the wall clock.
template <class Instant>
void add_steps(std::vector<Span>& spans, TraceNote& trace, const Instant& instant) {
  for (TraceNote::Step& step : trace.steps) {
    Span& part = spans.emplace_back();
    part.trace = trace.trace;
    part.span = step.span;
    part.parent = trace.span;
    part.name = step.name;
    part.kind = kind_of(step.name);
    part.begin = instant(step.begin);
    part.end = instant(step.end);
    if (!step.fault.empty()) part.fault = std::move(step.fault);
  }
}

} // namespace

SpanId new_span_id() {
  SpanId span{};
  fill_with_chance(span);
  return span;
}

SpanId upstream_span(const KeyedHash& hash, const TraceId& trace, const RecordId& id, std::uint64_t fence) {
  const auto bytes = [](const auto& array) {
    return std::string_view(reinterpret_cast<const char*>(array.data()), array.size());
  };
  const fmt::format_int number(fence);
  const std::array<std::string_view, 4> parts{"oncekey: span of a call", bytes(trace), bytes(id.bytes),
                                              std::string_view(number.data(), number.size())};
  const HashBytes made = hash.of(parts);
  SpanId span{};
  std::copy_n(made.begin(), span.size(), span.begin());
  return span;
}

// Not a coroutine: a request that is not traced goes to its handler at once.
Task<void> Tracing::handle(Exchange& exchange) {
  const std::optional<TraceContext> context = trace_context_of(exchange.request().headers);
  const bool sampled =
      context ? context->sampled()
              : sample_ >= 1 || (sample_ > 0 && static_cast<double>(random_bits() >> 11) * 0x1.0p-53 < sample_);
  if (!sampled) return handler_.handle(exchange);
  return traced(exchange, context);
}

Task<void> Tracing::traced(Exchange& exchange, std::optional<TraceContext> context) {
  const auto wall = std::chrono::system_clock::now();
  const auto start = std::chrono::steady_clock::now();
  TraceNote trace;
  if (context) {
    trace.trace = context->trace;
  } else {
    fill_with_chance(trace.trace);
  }
  trace.span = new_span_id();
  exchange.trace_into(trace);
  AccessNote own;
  if (exchange.note() == nullptr) exchange.note_into(own);
  AccessNote& note = *exchange.note();
  note.trace = hex_encode(trace.trace);
  std::exception_ptr thrown;
  try {
    co_await handler_.handle(exchange);
  } catch (...) {
    thrown = std::current_exception();
  }

  const auto instant = [&](std::chrono::steady_clock::time_point at) { return wall + (at - start); };
  const RequestHead& head = exchange.request();
  std::vector<Span> spans;
  Span& request = spans.emplace_back();
  request.trace = trace.trace;
  request.span = trace.span;
  if (context) {
    request.parent = context->span;
    request.state = head.headers.get("tracestate").value_or(std::string_view{});
  }
  const std::string method(shown_method(head.method));
  request.name = note.route.empty() ? method : fmt::format("{} {}", method, note.route);
  request.kind = SpanKind::server;
  request.begin = wall;
  request.end = instant(std::chrono::steady_clock::now());
  request.attributes = {{"http.request.method", method},
                        {"http.response.status_code", std::int64_t{exchange.status()}}};
  if (!note.route.empty()) request.attributes.push_back({"http.route", note.route});
  if (!note.decision.empty()) request.attributes.push_back({"oncekey.decision", note.decision});
  if (!note.key.empty()) request.attributes.push_back({"oncekey.key", note.key});
  if (trace.link) request.link = SpanLink{trace.link->trace, trace.link->span};
  if (exchange.status() >= 500 || thrown) request.fault = fmt::format("status {}", exchange.status());
  add_steps(spans, trace, instant);
  exporter_.take(std::move(spans));
  if (thrown) std::rethrow_exception(thrown);
}

DetachedTrace::DetachedTrace(const TraceNote* request, SpanExporter* exporter) : exporter_(exporter) {
  if (request == nullptr || exporter == nullptr) return;
  note_.emplace();
  note_->trace = request->trace;
  note_->span = request->span;
}

DetachedTrace::~DetachedTrace() {
  if (!note_) return;
  std::vector<Span> spans;
  add_steps(spans, *note_, [this](std::chrono::steady_clock::time_point at) { return wall_ + (at - start_); });
  exporter_->take(std::move(spans));
}

void note_step(TraceNote* trace, std::string_view name, std::chrono::steady_clock::time_point begin,
               std::string_view fault) {
  if (trace != nullptr) note_step(trace, name, begin, new_span_id(), fault);
}

void note_step(TraceNote* trace, std::string_view name, std::chrono::steady_clock::time_point begin, const SpanId& span,
               std::string_view fault) {
  if (trace == nullptr || trace->steps.size() >= TraceNote::kStepsMax) return;
  trace->steps.push_back({name, span, begin, std::chrono::steady_clock::now(), std::string(fault)});
}

std::string traceparent_for_upstream(const TraceNote* trace, const SpanId& span) {
  return trace == nullptr ? std::string() : traceparent_of({trace->trace, span, 1});
}

std::optional<TraceId> trace_of(const Exchange& exchange) {
  if (exchange.trace() != nullptr) return exchange.trace()->trace;
  return trace_of(exchange.request().headers);
}

} // namespace oncekey
