// admin_client: one request to the admin listener of a running gateway.
#pragma once

#include "config/config.h"

#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

struct AdminAnswer {
  int status = 0;
  std::string body;
};

// Knows where the listener is and the token it wants. Blocking; one connection a call.
class AdminClient {
 public:
  // An empty token is not sent.
  AdminClient(Address address, std::string token) : address_(std::move(address)), token_(std::move(token)) {}

  // A fault means that no complete answer came: nobody listens there, or it did not answer in time. For a POST that
  // leaves open whether the action happened.
  Result<AdminAnswer> get(std::string_view target) const { return exchange("GET", target, ""); }
  Result<AdminAnswer> post(std::string_view target, std::string_view json) const {
    return exchange("POST", target, json);
  }

 private:
  Result<AdminAnswer> exchange(std::string_view method, std::string_view target, std::string_view json) const;

  Address address_;
  std::string token_;
};

} // namespace oncekey
