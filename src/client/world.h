// world: everything about a Client that is not a rule: clocks, chance, sleep and the network.
#pragma once

#include "http/fetch.h"

#include <oncekey/client.h>

namespace oncekey {

class ClientWorld {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  virtual ~ClientWorld() = default;
  virtual Moment now() = 0;
  virtual Time wall_clock() = 0;
  virtual void sleep(Millis duration) = 0;
  virtual double chance() = 0; // from 0 to less than 1
  // Over by `due`, whatever the server does.
  virtual Fetched exchange(const FetchRequest& request, Moment due) = 0;
};

// A Client in another world than the real one.
struct ClientInTests {
  static Result<std::unique_ptr<Client>> open(ClientOptions options, std::unique_ptr<ClientWorld> world);
};

} // namespace oncekey
