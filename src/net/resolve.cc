#include "net/resolve.h"

#include <fmt/format.h>

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace oncekey {

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
