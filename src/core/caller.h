// caller: what the gateway knows of the sender of a request, besides the request itself.
#pragma once

#include "base/certificate.h"
#include "core/accounts.h"
#include "core/jwt.h"
#include "core/refusal.h"

#include <string_view>
#include <variant>

namespace oncekey {

// Refused with token_invalid, or with jwks_unavailable when there are no keys to judge the token by.
using TokenVerdict = std::variant<VerifiedToken, Refusal>;

// Judges the bearer token of one request by the keys and rules of its route.
class TokenJudge {
 public:
  virtual ~TokenJudge() = default;
  // Lives as long as the judge does.
  virtual const TokenVerdict& judge(std::string_view token) const = 0;
};

// All of it may be null.
struct Caller {
  const TokenJudge* tokens = nullptr;
  const CertificateName* certificate = nullptr; // verified in the TLS handshake
  const Accounts* accounts = nullptr;
};

} // namespace oncekey
