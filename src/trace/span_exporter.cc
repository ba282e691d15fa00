#include "trace/span_exporter.h"

#include <fmt/format.h>

#include <iterator>

namespace oncekey {
namespace {

constexpr std::chrono::seconds kSendEvery{1};
// With so many gathered they are sent before the second is over. A few hundred KiB of JSON.
constexpr std::size_t kSendAt = 512;
// Some seconds of a busy gateway's traced requests, and about 20 MB.
constexpr std::size_t kQueueMax = 16'384;
constexpr std::chrono::seconds kPatience{10};
// At the end of the process.
constexpr std::chrono::seconds kLastPatience{2};
constexpr std::uint64_t kAnswerBytesMax = 64u << 10;

} // namespace

Result<std::unique_ptr<SpanExporter>> SpanExporter::open(Url endpoint, TraceResource resource, Log& log) {
  auto fetcher = Fetcher::open({}, {kAnswerBytesMax, AnswerLimit::Longer::is_cut});
  if (!fetcher) return std::move(fetcher).fault();
  while (endpoint.target.ends_with('/')) endpoint.target.pop_back();
  endpoint.target += "/v1/traces";
  return std::unique_ptr<SpanExporter>(
      new SpanExporter(std::move(endpoint), std::move(resource), *std::move(fetcher), log));
}

SpanExporter::SpanExporter(Url endpoint, TraceResource resource, std::unique_ptr<Fetcher> fetcher, Log& log)
    : endpoint_(std::move(endpoint)),
      resource_(std::move(resource)),
      fetcher_(std::move(fetcher)),
      log_(log),
      thread_([this] { run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (!queue_.empty()) send(queue_, kLastPatience);
}

void SpanExporter::take(std::vector<Span> spans) {
  bool many = false;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() + spans.size() > kQueueMax) {
      dropped_ += spans.size();
      return;
    }
    many = queue_.size() < kSendAt && queue_.size() + spans.size() >= kSendAt;
    std::move(spans.begin(), spans.end(), std::back_inserter(queue_));
  }
  if (many) wake_.notify_one();
}

void SpanExporter::run() {
  for (;;) {
    std::vector<Span> spans;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kSendEvery, [this] { return stopping_ || queue_.size() >= kSendAt; });
      if (stopping_) return;
      spans.swap(queue_);
    }
    if (!spans.empty()) send(spans, kPatience);
  }
}

void SpanExporter::send(const std::vector<Span>& spans, std::chrono::milliseconds patience) {
  const std::string body = otlp_json(resource_, spans);
  FetchRequest request{"POST", endpoint_, {}, body};
  request.headers.add("Content-Type", "application/json");
  request.headers.add("User-Agent", "oncekey");
  const Fetched fetched = fetcher_->fetch(request, std::chrono::steady_clock::now() + patience);
  const auto* const answer = std::get_if<FetchedAnswer>(&fetched);
  if (answer != nullptr && answer->status / 100 == 2) {
    sent_ += spans.size();
    return;
  }
  dropped_ += spans.size();
  const std::string reason = answer != nullptr
                                 ? fmt::format("the collector answered {} {}", answer->status, answer->reason)
                                 : std::get<FetchFailure>(fetched).reason;
  log_.seldom(LogLevel::warning, "spans_dropped", {},
              {{"spans", spans.size()}, {"collector", endpoint_.authority}, {"reason", reason}},
              std::chrono::seconds(60));
}

} // namespace oncekey
