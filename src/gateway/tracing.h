// Tracing: a span for each request that is traced, with a span below it for each claim, call of the upstream and write
// of the answer.
//
// A request is traced if its `traceparent` says "sampled". One without a `traceparent` is traced by chance, as
// trace_sample says. The upstream then gets a `traceparent` with the span of the call; `tracestate` goes through as it
// is. A replay has a link to the call of the upstream that its answer comes from. An execution that goes on after its
// client was told to come back (202) has its spans below that request's, although it ends later.
#pragma once

#include "core/trace.h"
#include "http/server.h"
#include "trace/span_exporter.h"

#include <oncekey/record.h>

namespace oncekey {

class KeyedHash;

// Stands in front of the handler whose requests it traces, and behind the access log. One for each thread; they share
// the exporter.
class Tracing final : public Handler {
 public:
  Tracing(Handler& handler, SpanExporter& exporter, double sample)
      : handler_(handler), exporter_(exporter), sample_(sample) {}
  Task<void> handle(Exchange& exchange) override;

 private:
  Task<void> traced(Exchange& exchange, std::optional<TraceContext> context);

  Handler& handler_;
  SpanExporter& exporter_;
  const double sample_;
};

// The trace of an execution that goes on without its client. Its spans are exported with the end of this.
class DetachedTrace {
 public:
  // Of a request that is not traced, or where there is no exporter (both null then), it is nothing.
  DetachedTrace(const TraceNote* request, SpanExporter* exporter);
  ~DetachedTrace();
  DetachedTrace(const DetachedTrace&) = delete;
  DetachedTrace& operator=(const DetachedTrace&) = delete;

  TraceNote* note() { return note_ ? &*note_ : nullptr; }

 private:
  SpanExporter* const exporter_;
  const std::chrono::system_clock::time_point wall_ = std::chrono::system_clock::now();
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<TraceNote> note_;
};

// A new id; never all zeros.
SpanId new_span_id();

// The span of the call of the upstream under this claim. Made of what a replay finds in the record, so that it can link
// to it.
SpanId upstream_span(const KeyedHash& hash, const TraceId& trace, const RecordId& id, std::uint64_t fence);

// The next do nothing where the request is not traced (null).

// Notes a part of the request that ends now.
void note_step(TraceNote* trace, std::string_view name, std::chrono::steady_clock::time_point begin,
               std::string_view fault = {});
void note_step(TraceNote* trace, std::string_view name, std::chrono::steady_clock::time_point begin, const SpanId& span,
               std::string_view fault);
// The `traceparent` that the upstream is to get, from this span.
std::string traceparent_for_upstream(const TraceNote* trace, const SpanId& span);
// The trace that a request belongs to: its own, or the one it was given here.
std::optional<TraceId> trace_of(const Exchange& exchange);

} // namespace oncekey
