// reload: SIGHUP reads the configuration again and takes it on, all of it or nothing.
//
// The file and the files it names are read and checked as by `oncekey check`. Then requests that come go by it, while
// those under way end with what they began with. Refused, with the old configuration in force:
//   - a mistake anywhere;
//   - a setting that is only read at start (config/reload_rules.h): the log names it;
//   - rules under which the keys in the store would not be found (config/identity_rules.h);
//   - an accounts file that has lost entries.
#pragma once

#include "base/log.h"
#include "config/flags.h"
#include "gateway/shared.h"
#include "gateway/trust_keeper.h"
#include "http/server.h"

#include <functional>
#include <string>

namespace oncekey {

LogLevel log_level_of(std::string_view text);

class Reloader {
 public:
  struct Parts {
    GatewayShared& shared;
    Server& clients;
    Server& operators;
    TrustKeeper* keeper;                  // null where no route has tokens or accounts
    std::function<void()> trust_upstream; // has the certificates of the upstream read anew
  };
  // `running` is what the process has started with, as it was read.
  Reloader(asio::io_context& context, ServeFlags flags, ReadConfig running, Parts parts, Log& log);

 private:
  void wait();
  void reload();
  // What has changed, or why it cannot be taken on: one reason each.
  Status take_on(ReadConfig next, std::string& changed, std::vector<std::string>& reasons);

  const ServeFlags flags_;
  ReadConfig running_;
  Parts parts_;
  Log& log_;
  asio::signal_set signals_;
};

} // namespace oncekey
