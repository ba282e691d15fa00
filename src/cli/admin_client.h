// admin_client: one request to the admin listener of a running gateway.
#pragma once

#include "client/url.h"

#include <oncekey/result.h>

#include <string>
#include <string_view>
#include <utility>

namespace oncekey {

struct AdminAnswer {
  int status = 0;
  std::string body;
  std::string token_from; // of the client that asked
};

struct AdminToken {
  std::string text;
  std::string from; // where it was found, for messages; empty if there is none
};

// Knows where the listener is and the token it wants. Blocking; one connection a call.
class AdminClient {
 public:
  // The URL's target is not used. An empty token is not sent. `ca_file`: PEM certificates to trust for https, the
  // system's if empty.
  AdminClient(Url url, AdminToken token, std::string ca_file)
      : url_(std::move(url)), token_(std::move(token)), ca_file_(std::move(ca_file)) {}

  // Before the first call the server is asked, without the token, whether it is an admin listener: a token must not go
  // to another server because of a wrong port.
  //
  // A fault means that no complete answer came: no process listens there, or it did not answer in time. Whether the
  // action of a POST happened is then unknown. `invalid`: another server listens there, and the token was not sent.
  Result<AdminAnswer> get(std::string_view target) const { return exchange("GET", target, ""); }
  Result<AdminAnswer> post(std::string_view target, std::string_view json) const {
    return exchange("POST", target, json);
  }

 private:
  Result<AdminAnswer> exchange(std::string_view method, std::string_view target, std::string_view json) const;
  enum class SendToken { no, yes };
  Result<AdminAnswer> send(std::string_view method, std::string_view target, std::string_view json,
                           SendToken send_token) const;
  Status identify() const;

  Url url_;
  AdminToken token_;
  std::string ca_file_;
  mutable bool identified_ = false;
};

} // namespace oncekey
