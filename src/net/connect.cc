#include "net/connect.h"

#include "net/resolve.h"

#include <fmt/format.h>

#include <utility>

namespace oncekey {
namespace {

void fail(Connected& connected, ConnectFailure failure, std::string reason) {
  connected.transport.reset();
  connected.failure = failure;
  connected.reason = std::move(reason);
}

ConnectFailure kind_of(const std::error_code& error) {
  if (is_own_shortage(error)) return ConnectFailure::own_shortage;
  if (is_distrust(error)) return ConnectFailure::distrusted;
  return error == std::errc::timed_out ? ConnectFailure::timed_out : ConnectFailure::unreachable;
}

} // namespace

Task<Connected> connect(Loop& loop, std::string host, std::uint16_t port, TlsContext tls, MonotonicTime due) {
  Connected connected;
  Resolved resolved = co_await resolve(loop, host, port, due);
  if (resolved.addresses.empty()) {
    fail(connected, resolved.no_such_name ? ConnectFailure::no_such_name : ConnectFailure::unreachable,
         std::move(resolved.reason));
    co_return connected;
  }
  connected.transport = std::make_unique<Transport>(loop);
  std::error_code error;
  std::size_t left = resolved.addresses.size();
  for (const SocketAddress& address : resolved.addresses) {
    const MonotonicTime now = std::chrono::steady_clock::now();
    const auto share = (due - now) / static_cast<std::int64_t>(left);
    --left;
    connected.transport->deadline(now + share);
    error = co_await connected.transport->connect(address);
    if (!error) {
      connected.address = address.text();
      break;
    }
  }
  if (error) {
    fail(connected, kind_of(error), fmt::format("{} connecting to {}:{}", error.message(), host, port));
    co_return connected;
  }
  connected.transport->deadline(due);
  if (tls == nullptr) co_return connected;
  error = co_await connected.transport->connect_tls(tls, host);
  if (error) fail(connected, kind_of(error), fmt::format("TLS with {}:{} failed: {}", host, port, error.message()));
  co_return connected;
}

} // namespace oncekey
