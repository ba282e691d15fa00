// handover: a gateway hands its listening sockets to the process that replaces it, so that no client notices.
//
// `oncekey serve --take-over` asks the gateway that listens on its address. Both talk over a unix socket with a name
// and no file, made of the user and that address, in whole messages; sockets travel with them (SCM_RIGHTS). Each side
// checks that the other is the same user.
//
//   new to old   "oncekey-handover 1 STORE"   asks; STORE names the store, which must be the same
//   old to new   "listener NAME" + socket     once for each; or "refused REASON", and all stays as it was
//                "granted PID"
//   new to old   "drain"                      the old gateway stops accepting and lets requests end
//   old to new   "released"                   it has let go of the store
//   new to old   "ready"                      the new gateway serves
//   old to new   "connection NAME" + socket   once for each idle connection of a listener; then it exits
//
// Both processes hold the listening sockets, so connections wait in their backlogs while neither accepts. With an
// embedded store the new gateway sends "drain" before it opens the store; one on a shared store sends it with "ready",
// when it accepts already.
//
// Who is killed when, and what happens. The store decides who may write: a folder has one owner at a time, enforced by
// locks that the kernel ends with the process, and a claim in a shared store has its lease and its fence.
//   the new one before "drain"    the old one goes on as if nothing had been asked
//   the new one before "ready"    the old one, having let go of the store, starts itself anew on the same sockets
//   (exec) the old one at any time       the new one finds the channel closed and opens the store, as after any crash
// The old gateway never uses the store again once it has said "released", whatever happens.
#pragma once

#include "base/log.h"
#include "cli/service_manager.h"
#include "net/loop.h"

#include <oncekey/result.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace oncekey {

// A message of the protocol, and the socket that came with it.
struct HandoverMessage {
  std::string text; // empty: the other process is gone
  Descriptor socket{};
};

// One end of the channel between two gateways. Blocking, unless it says otherwise.
class HandoverChannel {
 public:
  HandoverChannel() = default;
  explicit HandoverChannel(Descriptor socket) : socket_(std::move(socket)) {}

  bool open() const { return socket_.open(); }
  int number() const { return socket_.number(); }
  // False if the other process is gone.
  bool send(const std::string& text, int socket = -1) const;
  HandoverMessage receive() const;
  // Whether there is something to receive within that time.
  bool wait(std::chrono::milliseconds patience) const;
  // Does not block.
  bool other_is_gone() const;
  void close() { socket_.close(); }

 private:
  Descriptor socket_;
};

// What the store of a gateway is called between two of them: the same text means the same store. For an embedded store
// the folder itself, wherever its path leads.
std::string handover_name_of_store(const std::string& store_url);

// The side of a running gateway: listens for one that wants to take over.
class HandoverOffer {
 public:
  struct Listening {
    std::string name;
    std::function<Descriptor()> duplicate;
  };
  struct Parts {
    std::string address; // of the listener for clients
    std::string store;   // handover_name_of_store()
    std::vector<Listening> listeners;
    std::function<void()> drain; // "drain" has come
    // Whether the gateway is stopping already.
    std::function<bool()> stops;
  };
  HandoverOffer(Loop& loop, Parts parts, Log& log);
  HandoverOffer& operator=(HandoverOffer&&) = delete;

  // What is left to do for end_handover(), once "drain" has come: the channel and the listening sockets.
  bool accepted() const { return drains_; }
  struct Granted {
    HandoverChannel channel;
    InheritedSockets listeners;
  };
  Granted take() { return std::move(granted_); }

 private:
  Status listen();
  Task<void> offer();
  Task<void> talk(Descriptor socket);
  // Two processes cannot take over: the first one that asks may.
  Task<void> refuse_second(HandoverChannel channel, pid_t first);
  void refuse(const HandoverChannel& channel, std::string_view reason) const;
  // Sends the listening sockets, or why not.
  bool grant(const HandoverChannel& channel, const HandoverMessage& asked);

  Parts parts_;
  Log& log_;
  WatchedDescriptor listener_;
  WatchedDescriptor waiting_for_drain_; // the channel once more
  Granted granted_;
  pid_t talking_with_ = 0; // the process that asks at the moment; 0: none
  bool drains_ = false;
};

// A connection without a request under way, and the listener it came to.
struct IdleConnection {
  std::string listener;
  Descriptor socket;
};

// The last thing a gateway does whose store is closed: says "released", waits for the new one to serve, and gives it
// the idle connections. Returns the exit code. If the new gateway is gone, executes this program anew with the same
// arguments and the listening sockets; returns only if that fails.
int end_handover(HandoverOffer::Granted granted, const std::vector<IdleConnection>& connections, Log& log);
// The second half of it: this program anew.
int start_anew(const InheritedSockets& listeners, Log& log);

// The side of the new gateway.
class TakeOver {
 public:
  // Nothing if no gateway offers its sockets on that address. A fault if it refuses.
  static Result<std::unique_ptr<TakeOver>> ask(const std::string& address, const std::string& store, Log& log);

  InheritedSockets take_listeners() { return std::move(listeners_); }
  // The old gateway drains; returns once it has let go of the store, or is gone. A fault after that time.
  Status release_store(std::chrono::milliseconds patience);
  // For a store that both may use: the old gateway drains while this one serves.
  void drain_other();
  // This gateway serves: takes over the idle connections of the other, on that loop.
  using Adopt = std::function<void(IdleConnection connection)>;
  void ready(Loop& loop, Adopt adopt);

 private:
  TakeOver(HandoverChannel channel, Log& log) : channel_(std::move(channel)), log_(log) {}
  Task<void> receive_connections(Loop& loop, Adopt adopt);

  HandoverChannel channel_;
  Log& log_;
  InheritedSockets listeners_;
  std::string pid_;
};

} // namespace oncekey
