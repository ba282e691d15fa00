// open_metrics: what is counted in the text format of OpenMetrics 1.0, with exemplars.
//
// An exemplar is one observation of a bucket with the trace it belongs to: from a slow bucket of a dashboard to the
// trace of a slow request. The text format of Prometheus has none, and prometheus-cpp has no writer for OpenMetrics.
#pragma once

#include "core/trace.h"

#include <prometheus/metric_family.h>

#include <array>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace oncekey {

struct Exemplar {
  TraceId trace{};
  double value = 0;
  std::chrono::system_clock::time_point at{};
};

// The newest exemplar of each bucket of one histogram. Safe to use from several threads; touched only for requests that
// belong to a trace.
class BucketExemplars {
 public:
  // `bounds` are those of the histogram, and outlive this.
  explicit BucketExemplars(const std::vector<double>& bounds) : bounds_(bounds), of_(bounds.size() + 1) {}
  void note(double value, const TraceId& trace);
  std::optional<Exemplar> of(std::size_t bucket) const;

 private:
  const std::vector<double>& bounds_;
  mutable std::mutex mutex_; // guards the next
  std::vector<std::optional<Exemplar>> of_;
};

// Finds the exemplars of a histogram by the name of its family and its labels; null if it has none.
using FindExemplars =
    std::function<const BucketExemplars*(const std::string& family, const prometheus::ClientMetric& metric)>;

std::string open_metrics_text(const std::vector<prometheus::MetricFamily>& families, const FindExemplars& find);

// Does the client of /metrics ask for it by its Accept header?
bool accepts_open_metrics(std::string_view accept);
inline constexpr std::string_view kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

} // namespace oncekey
