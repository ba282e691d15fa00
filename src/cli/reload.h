// reload: SIGHUP reads the configuration again and applies it, all of it or nothing.
//
// The file and the files it names are read and checked as by `oncekey check`. New requests then use the new
// configuration; those under way end with the one they began with. A reload is refused, and the old configuration stays
// in force, for:
//   - a mistake anywhere;
//   - a setting that is only read at start (config/reload_rules.h): the log names it;
//   - rules under which the keys in the store would not be found (config/identity_rules.h);
//   - an accounts file that has lost entries;
//   - an encryption key file without the key that has sealed until now, or with another key under a known id;
//   - rules or entries that the store cannot be made to remember (cli/identity_memory.h).
#pragma once

#include "cli/identity_memory.h"
#include "config/load.h"
#include "config/reload_rules.h"
#include "core/sealing.h"
#include "gateway/shared.h"
#include "gateway/trust_keeper.h"
#include "http/server.h"
#include "net/signals.h"

#include <map>

namespace oncekey {

// What the files that a configuration names hold, by setting and path, as a hash: "tls_cert /etc/chain.pem".
using FileDigests = std::map<std::string, std::string>;

class Reloader {
 public:
  struct Parts {
    GatewayShared& shared;
    Server& clients;
    Server& operators;
    TrustKeeper* keeper;                  // null where no route has tokens or accounts
    Sealer* sealer;                       // null where the store is not encrypted
    std::function<void()> trust_upstream; // has the certificates of the upstream read anew
    std::function<void()> begins{};       // a reload; the service manager hears of both
    std::function<void()> ended{};
  };
  // `running` is what the process has started with, as it was read, and `remembered` what the store remembers of it.
  Reloader(Loop& loop, ServeFlags flags, ReadConfig running, IdentityBasis remembered, Parts parts, Log& log);

 private:
  // A configuration that has been checked: applying it cannot fail.
  struct Next {
    ReadConfig read;
    IdentityBasis basis;
    std::vector<std::string> changed;
    FileDigests files;
    std::unique_ptr<Generation> generation; // null where no setting has changed
    TlsContext for_clients;
    TlsContext for_operators;
    std::unique_ptr<const SealingKeys> sealing_keys; // null where the store is not encrypted
  };

  void reload();
  void reloaded();
  // Null if the configuration cannot be applied, with the reasons.
  std::shared_ptr<Next> prepare(std::vector<std::string>& reasons);
  Status load(Next& next, const ConfigChanges& changes) const;
  void take_on(Next& next);
  void refuse(const std::vector<std::string>& reasons);
  // Has the store remember the entries that an accounts file has now.
  void remember_accounts();

  const ServeFlags flags_;
  ReadConfig running_;
  FileDigests files_;
  IdentityBasis remembered_;
  Parts parts_;
  Log& log_;
  bool reloading_ = false;
  bool asked_again_ = false; // while reloading
  SignalWatch signals_;
  IdentityWriter writer_;
};

} // namespace oncekey
