// Succession: the sockets and the store that a gateway begins with, its own or those of the gateway that it replaces
// (`serve --take-over`; the protocol is in handover.h).
//
// A gateway that cannot start must not make the running one stop. So what can be checked without the store is checked
// before the running gateway is asked to drain.
#pragma once

#include "cli/handover.h"
#include "config/load.h"
#include "core/sealing.h"
#include "store/open_store.h"

#include <memory>
#include <string_view>

namespace oncekey {

class Succession {
 public:
  // The sockets that the environment announces; with --take-over those of the gateway that runs on the same address, if
  // there is one. With an embedded store that one has let go of the store when this returns, or is gone.
  static Result<Succession> begin(const ServeFlags& flags, const Config& config, const Sealer* sealer, Log& log);

  // As open_store(). With --take-over an embedded store that another process has still open is waited for.
  Result<std::unique_ptr<Store>> open(const std::string& url, const StoreOptions& options) const;

  // The socket for the listener of that name; a closed one if it is to be bound.
  Descriptor socket_for(std::string_view name, const Address& address);
  // All listeners have theirs: what is left is named in the log and closed.
  void close_unused(Log& log);

  // This gateway serves: the other one drains if it has not, and its idle connections come to `adopt` on that loop.
  void serves(Loop& loop, TakeOver::Adopt adopt);

 private:
  Status take_over(const Config& config, Log& log);

  InheritedSockets sockets_;
  std::unique_ptr<TakeOver> other_; // null where no gateway is replaced
  bool shares_store_ = false;       // both gateways may use it at the same time
  MonotonicTime store_due_{};
};

} // namespace oncekey
