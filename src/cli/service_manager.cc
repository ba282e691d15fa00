#include "cli/service_manager.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace oncekey {
namespace {

// The first descriptor that is passed, by sd_listen_fds(3).
constexpr int kFirstPassed = 3;
constexpr int kPassedMax = 64;
// "PID NAME=NUMBER ...": sockets that keep their numbers over an exec.
constexpr const char* kPassedOn = "ONCEKEY_PASSED_ON";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_listener(std::string_view name) {
  return name == kGatewaySocket || name == kAdminSocket || name == kOutboxSocket;
}

bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }

} // namespace

Result<InheritedSockets> InheritedSockets::from_environment() {
  InheritedSockets sockets;
  const std::string self = std::to_string(::getpid());
  const std::vector<std::string> passed_on = parts_of(variable(kPassedOn), ' ');
  ::unsetenv(kPassedOn);
  if (passed_on.front() == self) {
    for (std::size_t i = 1; i < passed_on.size(); ++i) {
      const std::size_t equals = passed_on[i].find('=');
      const auto number =
          number_in(std::string_view(passed_on[i]).substr(std::min(equals, passed_on[i].size() - 1) + 1));
      if (number && is_open(static_cast<int>(*number)))
        sockets.add(passed_on[i].substr(0, equals), Descriptor(static_cast<int>(*number)));
    }
  }

  const std::string pid = variable("LISTEN_PID");
  const std::string count_text = variable("LISTEN_FDS");
  const std::vector<std::string> names = parts_of(variable("LISTEN_FDNAMES"), ':');
  for (const char* const name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  if (pid != self || count_text.empty()) return sockets;
  const std::optional<std::int64_t> count = number_in(count_text);
  if (!count || *count < 0 || *count > kPassedMax)
    return invalid(fmt::format("LISTEN_FDS: expected a number from 0 to {}, got \"{}\"", kPassedMax, count_text));
  for (int i = 0; i < *count; ++i) {
    const int number = kFirstPassed + i;
    const std::string& given = static_cast<std::size_t>(i) < names.size() ? names[static_cast<std::size_t>(i)] : "";
    // A unit without FileDescriptorName= names its only socket after itself.
    const std::string name = *count == 1 && !is_listener(given) ? std::string(kGatewaySocket) : given;
    if (!is_open(number)) return invalid(fmt::format("LISTEN_FDS announces descriptor {}, which is not open", number));
    if (!is_listener(name)) {
      return invalid(fmt::format(
          "LISTEN_FDNAMES: expected {}, {} or {} for each socket, got \"{}\": set FileDescriptorName= in the "
          "socket unit",
          kGatewaySocket, kAdminSocket, kOutboxSocket, name));
    }
    if (sockets.sockets_.contains(name))
      return invalid(fmt::format("two sockets were passed for the listener \"{}\": pass one", name));
    sockets.add(name, Descriptor(number));
  }
  return sockets;
}

Descriptor InheritedSockets::take(std::string_view name) {
  const auto at = sockets_.find(name);
  if (at == sockets_.end()) return {};
  Descriptor taken = std::move(at->second);
  sockets_.erase(at);
  return taken;
}

std::vector<std::string> InheritedSockets::left() const {
  std::vector<std::string> names;
  for (const auto& [name, socket] : sockets_) names.push_back(name);
  return names;
}

void InheritedSockets::pass_on_to_exec() const {
  std::string text = std::to_string(::getpid());
  for (const auto& [name, socket] : sockets_) {
    ::fcntl(socket.number(), F_SETFD, 0); // stays open over the exec
    text += fmt::format(" {}={}", name, socket.number());
  }
  ::setenv(kPassedOn, text.c_str(), 1);
}

ServiceManager::ServiceManager() : address_(variable("NOTIFY_SOCKET")) {
  const bool usable = address_.size() > 1 && address_.size() < sizeof(sockaddr_un::sun_path) &&
                      (address_.front() == '/' || address_.front() == '@');
  if (!usable) address_.clear();
  const std::string for_pid = variable("WATCHDOG_PID");
  const std::optional<std::int64_t> usec = number_in(variable("WATCHDOG_USEC"));
  if (address_.empty() || !usec || *usec <= 0 || (!for_pid.empty() && for_pid != std::to_string(::getpid()))) return;
  watchdog_ = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::microseconds(*usec));
}

void ServiceManager::ready(std::string_view status) const { tell(fmt::format("READY=1\nSTATUS={}", status)); }

void ServiceManager::reloading() const {
  // systemd compares it with when it sent the signal, on the same clock.
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  tell(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000));
}

void ServiceManager::stopping(std::string_view status) const { tell(fmt::format("STOPPING=1\nSTATUS={}", status)); }

void ServiceManager::tell(std::string_view lines) const {
  if (address_.empty()) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (address_.front() == '@') to.sun_path[0] = '\0'; // a name without a file
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  (void)!::sendto(socket.number(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr*>(&to), length);
}

Watchdog::Watchdog(const ServiceManager& manager, Loop& timers, std::vector<Loop*> loops)
    : manager_(manager), loops_(std::move(loops)), timer_(timers, [this] { look(); }) {
  if (manager_.watchdog()) look();
}

void Watchdog::look() {
  timer_.after(*manager_.watchdog() / 3);
  if (silent_.load() > 0) return;
  manager_.alive();
  silent_.store(loops_.size());
  for (Loop* const loop : loops_) loop->post([this] { silent_.fetch_sub(1); });
}

} // namespace oncekey
