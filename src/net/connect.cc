#include "net/connect.h"

#include <fmt/format.h>

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <thread>

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
  if (is_no_tls(error)) return ConnectFailure::no_tls;
  return error == std::errc::timed_out ? ConnectFailure::timed_out : ConnectFailure::unreachable;
}

// On the caller's thread, for as long as it takes.
Resolved resolve_now(const std::string& host, std::uint16_t port) {
  Resolved resolved;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    const char* const why = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    resolved.reason = fmt::format("the name {} cannot be resolved: {}", host, why);
    resolved.no_such_name = error == EAI_NONAME;
    return resolved;
  }
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress& address = resolved.addresses.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
  }
  ::freeaddrinfo(found);
  if (resolved.addresses.empty()) resolved.reason = fmt::format("the name {} has no address", host);
  return resolved;
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

Task<Resolved> resolve(Loop& loop, const std::string& host, std::uint16_t port, MonotonicTime due) {
  Resolved resolved;
  if (const auto literal = parse_ip(host, port)) {
    resolved.addresses.push_back(*literal);
    co_return resolved;
  }
  const auto lookup = std::make_shared<Lookups::Lookup>(loop, host, port);
  if (!loop.lookups().ask(lookup)) {
    resolved.reason = fmt::format("the name {} cannot be resolved: too many names wait for the name servers", host);
    co_return resolved;
  }
  std::optional<Resolved> answer = co_await lookup->answer.wait_until(due);
  if (answer) co_return *std::move(answer);
  resolved.reason = fmt::format("the name {} was not resolved in time", host);
  co_return resolved;
}

bool Lookups::ask(std::shared_ptr<Lookup> lookup) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kWaitingMax) return false;
  if (threads_ < kThreadsMax) {
    try {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
      ++threads_;
    } catch (const std::system_error&) {
      if (threads_ == 0) return false;
    }
  }
  waiting_.push_back(std::move(lookup));
  return true;
}

void Lookups::leave() {
  const std::lock_guard lock(mutex_);
  loop_ = nullptr;
  waiting_.clear();
}

// A thread works for as long as there is something to look up.
void Lookups::work() {
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    std::shared_ptr<Lookup> lookup = std::move(waiting_.front());
    waiting_.pop_front();
    if (lookup.use_count() == 1) continue; // the task that asked has stopped waiting
    lock.unlock();
    Resolved resolved = resolve_now(lookup->host, lookup->port);
    lock.lock();
    if (loop_ == nullptr) continue;
    loop_->post(
        [found = std::move(resolved), asked = std::move(lookup)]() mutable { asked->answer.set(std::move(found)); });
  }
  --threads_;
}

} // namespace oncekey
