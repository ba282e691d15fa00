#include "gateway/open_metrics.h"

#include "base/ascii.h"
#include "base/crypto.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace oncekey {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::string_view kTotal = "_total";

// Backslash, quote and newline are escaped, in help texts and in labels alike.
void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '\\' || c == '"') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else {
      out.push_back(c);
    }
  }
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value); // the shortest that is read back as the same
}

// Bounds are written as floating-point numbers, also the whole ones.
std::string bound_text(double bound) {
  std::string text = number_text(bound);
  if (std::isfinite(bound) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void append_labels(std::string& out, const ClientMetric& metric, std::string_view le = {}) {
  if (metric.label.empty() && le.empty()) return;
  out.push_back('{');
  for (const ClientMetric::Label& label : metric.label) {
    if (out.back() != '{') out.push_back(',');
    out.append(label.name).append("=\"");
    append_escaped(out, label.value);
    out.push_back('"');
  }
  if (!le.empty()) {
    if (out.back() != '{') out.push_back(',');
    out.append("le=\"").append(le).append("\"");
  }
  out.push_back('}');
}

void append_exemplar(std::string& out, const Exemplar& exemplar) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(exemplar.at.time_since_epoch()).count();
  out += fmt::format(" # {{trace_id=\"{}\"}} {} {}.{:03}", hex_encode(exemplar.trace), number_text(exemplar.value),
                     millis / 1000, millis % 1000);
}

void append_histogram(std::string& out, const std::string& name, const ClientMetric& metric,
                      const BucketExemplars* exemplars) {
  for (std::size_t i = 0; i < metric.histogram.bucket.size(); ++i) {
    const ClientMetric::Bucket& bucket = metric.histogram.bucket[i];
    out += name + "_bucket";
    append_labels(out, metric, bound_text(bucket.upper_bound));
    out += fmt::format(" {}", bucket.cumulative_count);
    if (const auto exemplar = exemplars != nullptr ? exemplars->of(i) : std::nullopt) append_exemplar(out, *exemplar);
    out.push_back('\n');
  }
  out += name + "_count";
  append_labels(out, metric);
  out += fmt::format(" {}\n{}_sum", metric.histogram.sample_count, name);
  append_labels(out, metric);
  out += fmt::format(" {}\n", number_text(metric.histogram.sample_sum));
}

std::string_view type_name(MetricType type) {
  return type == MetricType::Counter ? "counter" : type == MetricType::Histogram ? "histogram" : "gauge";
}

} // namespace

void BucketExemplars::note(double value, const TraceId& trace) {
  const auto bucket =
      static_cast<std::size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  const std::lock_guard lock(mutex_);
  of_[bucket] = Exemplar{trace, value, std::chrono::system_clock::now()};
}

std::optional<Exemplar> BucketExemplars::of(std::size_t bucket) const {
  const std::lock_guard lock(mutex_);
  return bucket < of_.size() ? of_[bucket] : std::nullopt;
}

std::string open_metrics_text(const std::vector<MetricFamily>& families, const FindExemplars& find) {
  std::string out;
  for (const MetricFamily& family : families) {
    // A counter's family has the name without the ending that its samples have.
    std::string name = family.name;
    const bool counter = family.type == MetricType::Counter;
    if (counter && name.ends_with(kTotal)) name.resize(name.size() - kTotal.size());
    out += fmt::format("# TYPE {} {}\n# HELP {} ", name, type_name(family.type), name);
    append_escaped(out, family.help);
    out.push_back('\n');
    for (const ClientMetric& metric : family.metric) {
      if (family.type == MetricType::Histogram) {
        append_histogram(out, name, metric, find(family.name, metric));
        continue;
      }
      out += counter ? name + std::string(kTotal) : name;
      append_labels(out, metric);
      out += fmt::format(" {}\n", number_text(counter ? metric.counter.value : metric.gauge.value));
    }
  }
  out += "# EOF\n";
  return out;
}

bool accepts_open_metrics(std::string_view accept) {
  constexpr std::string_view kType = "application/openmetrics-text";
  while (!accept.empty()) {
    const std::size_t comma = std::min(accept.find(','), accept.size());
    std::string_view range = accept.substr(0, comma);
    accept.remove_prefix(std::min(comma + 1, accept.size()));
    while (range.starts_with(' ') || range.starts_with('\t')) range.remove_prefix(1);
    const std::string_view parameters = range.substr(std::min(kType.size(), range.size()));
    const bool refused =
        parameters.find("q=0") != std::string_view::npos && parameters.find("q=0.") == std::string_view::npos;
    if (starts_with_ignoring_case(range, kType) && !refused) return true;
  }
  return false;
}

} // namespace oncekey
