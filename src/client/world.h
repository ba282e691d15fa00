// world: everything about a Client that is not a rule: clocks, chance, sleep and the network.
#pragma once

#include "base/url.h"

#include <oncekey/client.h>

#include <chrono>
#include <string>
#include <variant>

namespace oncekey {

// A request as it goes out.
struct WireRequest {
  std::string method;
  Url url;
  Headers headers; // all but those of framing
  std::string_view body;
};

struct TryFailure {
  enum class Kind {
    not_sent, // certainly not executed
    unknown,  // a byte may have left
  };
  Kind kind = Kind::unknown;
  std::string reason;
  bool lasting = false; // another try would fail in the same way: a certificate that is not trusted, too long an answer
};

using Tried = std::variant<ClientResponse, TryFailure>;

class ClientWorld {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  virtual ~ClientWorld() = default;
  virtual Moment now() = 0;
  virtual Time wall_clock() = 0;
  virtual void sleep(Millis duration) = 0;
  virtual double chance() = 0; // from 0 to less than 1
  // Over by `due`, whatever the server does.
  virtual Tried exchange(const WireRequest& request, Moment due) = 0;
};

// A Client in another world than the real one.
struct ClientInTests {
  static Result<std::unique_ptr<Client>> open(ClientOptions options, std::unique_ptr<ClientWorld> world);
};

// The real one. `ca_file` and `response_bytes_max` as in ClientOptions.
Result<std::unique_ptr<ClientWorld>> real_world(std::string ca_file, std::uint64_t response_bytes_max);

} // namespace oncekey
