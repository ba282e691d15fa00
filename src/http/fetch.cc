#include "http/fetch.h"

#include <fmt/format.h>

#include <limits>

namespace oncekey {
namespace {

constexpr std::chrono::seconds kConnectTimeout{10};
// Below the 5 s after which Node closes its side.
constexpr std::chrono::seconds kIdleTimeout{4};
constexpr std::uint64_t kHeaderBytesMax = 64u << 10;
// Servers that one caller keeps connections to; one that speaks to more starts over.
constexpr std::size_t kOriginsMax = 32;

Fetched failure_of(CallError error, const UpstreamCall& call) {
  const bool sent = error != CallError::not_sent && error != CallError::full;
  return FetchFailure{sent ? FetchFailure::Kind::unknown : FetchFailure::Kind::not_sent, std::string(call.reason()),
                      call.failed_for_good()};
}

Task<Fetched> fetch_whole(UpstreamCall& call, const UpstreamRequest& request, std::string_view body, MonotonicTime due,
                          AnswerLimit limit) {
  try {
    co_return co_await fetch(call, request, body, due, limit);
  } catch (const std::exception& thrown) {
    co_return FetchFailure{FetchFailure::Kind::unknown, thrown.what(), false};
  }
}

} // namespace

Task<Fetched> fetch(UpstreamCall& call, const UpstreamRequest& request, std::string_view body, MonotonicTime due,
                    AnswerLimit limit) {
  const Framing framing = body.empty() ? Framing::none : Framing::length;
  CallError error = co_await call.send(request, framing, body.size(), body, due);
  ResponseHead head;
  // Interim answers mean nothing here.
  while (error == CallError::none && head.status < 200) error = co_await call.read_head(head);
  FetchedAnswer answer{head.status, std::move(head.reason), std::move(head.headers), {}};
  while (error == CallError::none) {
    std::string_view piece;
    error = co_await call.read_piece(piece);
    if (error == CallError::none && piece.empty()) co_return answer;
    if (answer.body.size() + piece.size() > limit.bytes) {
      if (limit.longer == AnswerLimit::Longer::is_cut) co_return answer;
      FetchFailure failure{FetchFailure::Kind::unknown, fmt::format("the answer is longer than {} bytes", limit.bytes),
                           true};
      co_return failure;
    }
    answer.body.append(piece);
  }
  co_return failure_of(error, call);
}

Result<UpstreamPool*> Fetcher::pool_for(FetchLoop& loop, const Url& url) {
  const std::string origin = url.origin();
  if (const auto it = loop.pools.find(origin); it != loop.pools.end()) return it->second.get();
  if (loop.pools.size() >= kOriginsMax) loop.pools.clear();
  UpstreamOptions options{.server = url,
                          .ca_file = ca_file_,
                          .ca_setting = "cannot read certificates from",
                          .connect_timeout = kConnectTimeout,
                          .idle_timeout = kIdleTimeout,
                          .max_header_bytes = kHeaderBytesMax,
                          .max_connections = std::numeric_limits<std::uint32_t>::max()};
  auto pool = UpstreamPool::make(std::move(options), loop.loop, in_use_);
  if (!pool) return pool.fault();
  return loop.pools.emplace(origin, *std::move(pool)).first->second.get();
}

Result<std::unique_ptr<Fetcher::FetchLoop>> Fetcher::take_loop() try {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<FetchLoop>();
  std::unique_ptr<FetchLoop> loop = std::move(idle_.back());
  idle_.pop_back();
  return loop;
} catch (const std::system_error&) {
  return unavailable("the process has no descriptor left for an event loop");
}

Result<std::unique_ptr<Fetcher>> Fetcher::open(std::string ca_file, AnswerLimit limit) {
  std::unique_ptr<Fetcher> made(new Fetcher(std::move(ca_file), limit));
  if (!made->ca_file_.empty()) {
    // A file that cannot be read is better known now than at the first call.
    auto loop = made->take_loop();
    if (!loop) return std::move(loop).fault();
    if (auto pool = made->pool_for(**loop, *parse_url("https://localhost")); !pool) return pool.fault();
  }
  return made;
}

Fetched Fetcher::fetch(const FetchRequest& request, MonotonicTime due) {
  auto taken = take_loop();
  if (!taken) return FetchFailure{FetchFailure::Kind::not_sent, taken.fault().message, false};
  std::unique_ptr<FetchLoop> loop = *std::move(taken);
  auto pool = pool_for(*loop, request.url);
  if (!pool) return FetchFailure{FetchFailure::Kind::not_sent, pool.fault().message, false};
  const UpstreamRequest wire{request.method, request.url.target, request.headers};
  std::optional<UpstreamCall> call(std::in_place, **pool);
  Fetched fetched = loop->loop.run_to_end(fetch_whole(*call, wire, request.body, due, limit_));
  call.reset(); // gives its connection back
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(loop));
  return fetched;
}

} // namespace oncekey
