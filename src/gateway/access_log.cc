#include "gateway/access_log.h"

#include "base/timestamp.h"

namespace oncekey {
namespace {

// Rounded to microseconds, as milliseconds.
double milliseconds_of(std::chrono::nanoseconds duration) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count()) / 1000;
}

std::string line_of(LogFormat format, const Exchange& exchange, const AccessNote& note, std::chrono::nanoseconds took) {
  const RequestHead& head = exchange.request();
  const auto or_dash = [](const std::string& text) { return text.empty() ? std::string_view("-") : text; };
  std::vector<LogField> fields{{"method", shown_method(head.method)},
                               {"route", or_dash(note.route)},
                               {"decision", or_dash(note.decision)},
                               {"status", exchange.status()},
                               {"ms", milliseconds_of(took)}};
  if (note.upstream) fields.emplace_back("upstream_ms", milliseconds_of(*note.upstream));
  fields.emplace_back("bytes_in", exchange.received_bytes());
  fields.emplace_back("bytes_out", exchange.sent_bytes());
  if (exchange.client_gone()) fields.emplace_back("client_gone", true);
  if (!note.key.empty()) fields.emplace_back("key", note.key);
  const std::string_view trace =
      note.trace.empty() ? trace_id_of(head.headers.get("traceparent").value_or(std::string_view{})) : note.trace;
  if (!trace.empty()) fields.emplace_back("trace", trace);
  const std::string line = log_line(format, "request", fields);
  return format == LogFormat::json
             ? fmt::format("{{\"time\":\"{}\",{}}}\n", timestamp(std::chrono::system_clock::now()), line)
             : fmt::format("time={} {}\n", timestamp(std::chrono::system_clock::now()), line);
}

} // namespace

std::string_view shown_method(std::string_view method) {
  for (const std::string_view known : {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}) {
    if (method == known) return known;
  }
  return "other";
}

// version-traceid-parentid-flags, in lower-case hex; later versions may append more.
std::string_view trace_id_of(std::string_view traceparent) {
  constexpr std::size_t kLength = 2 + 1 + 32 + 1 + 16 + 1 + 2;
  if (traceparent.size() < kLength || (traceparent.size() > kLength && traceparent[kLength] != '-')) return {};
  for (std::size_t i = 0; i < kLength; ++i) {
    const char c = traceparent[i];
    const bool dash = i == 2 || i == 35 || i == 52;
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (dash ? c != '-' : !hex) return {};
  }
  return traceparent.substr(3, 32);
}

Task<void> AccessLog::handle(Exchange& exchange) {
  const auto start = std::chrono::steady_clock::now();
  AccessNote note;
  exchange.note_into(note);
  std::exception_ptr thrown;
  try {
    co_await handler_.handle(exchange);
  } catch (...) {
    thrown = std::current_exception();
  }
  const std::string line = line_of(format_, exchange, note, std::chrono::steady_clock::now() - start);
  file_.append(line);
  if (thrown) std::rethrow_exception(thrown);
}

} // namespace oncekey
