// The network through the HTTP room's calls, each driven by an event loop of its own on the caller's thread.
#include "client/world.h"

#include "base/crypto.h"
#include "http/upstream.h"

#include <fmt/format.h>

#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

constexpr std::chrono::seconds kConnectTimeout{10};
// Below the 5 s after which Node closes its side.
constexpr std::chrono::seconds kIdleTimeout{4};
constexpr std::uint64_t kHeaderBytesMax = 64u << 10;
// Servers that one caller keeps connections to; one that speaks to more starts over.
constexpr std::size_t kOriginsMax = 32;

// An event loop and its connections: what one call needs, and leaves to the next one.
struct Lane {
  Loop loop;
  std::map<std::string, std::unique_ptr<UpstreamPool>> pools;
};

class RealWorld final : public ClientWorld {
 public:
  RealWorld(std::string ca_file, std::uint64_t response_bytes_max)
      : ca_file_(std::move(ca_file)), response_bytes_max_(response_bytes_max) {}

  Moment now() override { return std::chrono::steady_clock::now(); }
  Time wall_clock() override { return std::chrono::floor<Millis>(std::chrono::system_clock::now()); }
  void sleep(Millis duration) override { std::this_thread::sleep_for(duration); }
  double chance() override {
    // The upper 53 bits make every double of that grid equally likely.
    return static_cast<double>(random_u64() >> 11) * 0x1p-53;
  }
  Tried exchange(const WireRequest& request, Moment due) override;

  Result<UpstreamPool*> pool_for(Lane& lane, const Url& url);

 private:
  Task<Tried> call(UpstreamPool& pool, const WireRequest& request, Moment due);
  std::unique_ptr<Lane> take_lane();
  void give_back(std::unique_ptr<Lane> lane);

  const std::string ca_file_;
  const std::uint64_t response_bytes_max_;
  std::atomic<std::uint32_t> in_use_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> idle_; // as many as were ever in use at the same time
};

std::unique_ptr<Lane> RealWorld::take_lane() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Lane>();
  std::unique_ptr<Lane> lane = std::move(idle_.back());
  idle_.pop_back();
  return lane;
}

void RealWorld::give_back(std::unique_ptr<Lane> lane) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(lane));
}

Result<UpstreamPool*> RealWorld::pool_for(Lane& lane, const Url& url) {
  const std::string origin = fmt::format("{}|{}|{}", url.tls ? "tls" : "tcp", url.host, url.port);
  if (const auto it = lane.pools.find(origin); it != lane.pools.end()) return it->second.get();
  if (lane.pools.size() >= kOriginsMax) lane.pools.clear();
  UpstreamOptions options;
  options.host = url.host;
  options.port = url.port;
  options.tls = url.tls;
  options.ca_file = ca_file_;
  options.connect_timeout = kConnectTimeout;
  options.idle_timeout = kIdleTimeout;
  options.max_header_bytes = kHeaderBytesMax;
  options.max_connections = std::numeric_limits<std::uint32_t>::max();
  auto pool = UpstreamPool::make(options, lane.loop, in_use_);
  if (!pool) return pool.fault();
  return lane.pools.emplace(origin, *std::move(pool)).first->second.get();
}

Tried failure_of(CallError error, const UpstreamCall& call) {
  const bool sent = error != CallError::not_sent && error != CallError::full;
  return TryFailure{sent ? TryFailure::Kind::unknown : TryFailure::Kind::not_sent, std::string(call.reason()),
                    call.failed_for_good()};
}

Task<Tried> RealWorld::call(UpstreamPool& pool, const WireRequest& request, Moment due) {
  UpstreamCall upstream(pool);
  const UpstreamRequest head{request.method, request.url.target, request.headers};
  const Framing framing = request.body.empty() ? Framing::none : Framing::length;
  CallError error = co_await upstream.send(head, framing, request.body.size(), request.body, due);
  ResponseHead response;
  do {
    if (error == CallError::none) error = co_await upstream.read_head(response);
    if (error != CallError::none) co_return failure_of(error, upstream);
  } while (response.status < 200); // interim answers mean nothing here

  ClientResponse answer{response.status, std::move(response.reason), std::move(response.headers), {}};
  for (;;) {
    std::string_view piece;
    error = co_await upstream.read_piece(piece);
    if (error != CallError::none) co_return failure_of(error, upstream);
    if (piece.empty()) break;
    if (answer.body.size() + piece.size() > response_bytes_max_) {
      TryFailure failure{TryFailure::Kind::unknown,
                         fmt::format("the answer is longer than {} bytes", response_bytes_max_), true};
      co_return failure;
    }
    answer.body.append(piece);
  }
  co_return answer;
}

Task<Tried> outcome_of(Task<Tried> call) {
  try {
    co_return co_await std::move(call);
  } catch (const std::exception& thrown) {
    co_return TryFailure{TryFailure::Kind::unknown, thrown.what(), false};
  }
}

Tried RealWorld::exchange(const WireRequest& request, Moment due) {
  std::unique_ptr<Lane> lane = take_lane();
  auto pool = pool_for(*lane, request.url);
  if (!pool) return TryFailure{TryFailure::Kind::not_sent, pool.fault().message, false};
  Tried tried = lane->loop.run_to_end(outcome_of(call(**pool, request, due)));
  give_back(std::move(lane));
  return tried;
}

} // namespace

Result<std::unique_ptr<ClientWorld>> real_world(std::string ca_file, std::uint64_t response_bytes_max) {
  const std::string shown = ca_file.empty() ? "the system" : ca_file;
  auto world = std::make_unique<RealWorld>(std::move(ca_file), response_bytes_max);
  // Certificates that cannot be read are better known now than at the first call.
  Lane lane;
  Url probe;
  probe.tls = true;
  probe.host = "localhost";
  if (!world->pool_for(lane, probe))
    return invalid(fmt::format("cannot read the certificates to trust from {}", shown));
  return std::unique_ptr<ClientWorld>(std::move(world));
}

} // namespace oncekey
