#include "cli/shutdown.h"

#include "base/durations.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kDrainPoll{20};
constexpr std::chrono::milliseconds kAdminDrain{2000};
// For connections of tunnels that were closed at the end of a drain to be gone.
constexpr std::chrono::milliseconds kTunnelEnd{2000};

} // namespace

Shutdown::Shutdown(Loop& loop, GatewayShared& shared, Server& server, Server& admin, const ServiceManager& manager)
    : loop_(loop),
      shared_(shared),
      server_(server),
      admin_(admin),
      manager_(manager),
      lame_duck_(loop, [this] { drain(); }),
      signals_(loop, {SIGTERM, SIGINT}, [this] { signalled(); }) {}

void Shutdown::also(std::function<void()> begin, std::function<bool()> over) {
  others_.push_back({std::move(begin), std::move(over)});
}

void Shutdown::hand_over(bool clients_wait) {
  if (shared_.leaving.exchange(true)) return;
  idle_ = IdleConnections::keep;
  clients_wait_ = clients_wait;
  manager_.stopping("handing over to another process");
  // Connections with TLS cannot be kept: their clients learn by their answers to make new ones.
  if (shared_.config().tls_cert.empty()) return drain();
  leave();
}

void Shutdown::signalled() {
  if (!shared_.leaving.exchange(true)) {
    manager_.stopping("requests under way end");
    leave();
  } else if (!shared_.draining.load()) {
    drain();
  } else if (idle_ == IdleConnections::keep && !std::exchange(signalled_once_, true)) {
    // It drains for another gateway already, which the sender of the signal may not know.
  } else {
    shared_.log.warning("stopped", {{"reason", "second signal"}, {"connections", server_.connections()}});
    shared_.log.flush();
    std::_Exit(1);
  }
}

void Shutdown::leave() {
  const Millis lame_duck = shared_.config().timeouts.lame_duck;
  if (lame_duck == Millis(0)) return drain();
  shared_.log.info("leaving", {{"connections", server_.connections()}, {"lame_duck", format_duration(lame_duck)}});
  server_.leave();
  lame_duck_.after(lame_duck);
}

void Shutdown::drain() {
  lame_duck_.clear();
  shared_.draining.store(true);
  const std::uint64_t connections = server_.connections();
  server_.drain(idle_);
  // After the listener knows: what is answered once this line is there says that the connection ends.
  shared_.log.info("draining", {{"connections", connections}});
  for (const Other& other : others_) other.begin();
  // For a handover what they wait for comes to its end here, and so do they.
  if (idle_ == IdleConnections::close) {
    shared_.waits_end.store(true);
    shared_.waiters.notify_all();
  }
  deadline_ = std::chrono::steady_clock::now() + shared_.config().drain_timeout;
  spawn(poll());
}

Task<void> Shutdown::poll() {
  while (!over()) co_await sleep_for(loop_, kDrainPoll);
  then_();
}

bool Shutdown::over() {
  const MonotonicTime now = std::chrono::steady_clock::now();
  const bool others_over = std::all_of(others_.begin(), others_.end(), [](const Other& other) { return other.over(); });
  const bool drained = server_.connections() == 0 && shared_.detached.load() == 0 && others_over;
  const bool late = now >= deadline_;
  if ((late || clients_wait_) && !admin_draining_ && shared_.tunnels.load() > 0 && !tunnels_ended_) {
    tunnels_ended_ = true;
    shared_.log.info("tunnels_closed", {{"tunnels", shared_.tunnels.load()},
                                        {"reason", late ? "drain_timeout passed" : "clients wait for the handover"}});
    if (late) deadline_ = now + kTunnelEnd;
    end_tunnels_();
  }
  if ((drained || now >= deadline_) && !admin_draining_) {
    // Operators see the end of it: their listener goes last.
    clean_ = drained;
    admin_draining_ = true;
    deadline_ = now + kAdminDrain;
    admin_.drain();
  }
  if (admin_draining_ && (admin_.connections() == 0 || now >= deadline_)) {
    clean_ = clean_ && admin_.connections() == 0;
    return true;
  }
  return false;
}

} // namespace oncekey
