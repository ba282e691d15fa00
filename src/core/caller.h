// caller: what is known of who sends a request, besides the request itself.
#pragma once

#include "base/certificate.h"
#include "core/accounts.h"
#include "core/jwt.h"
#include "core/refusal.h"

#include <string_view>
#include <variant>

namespace oncekey {

// Judges bearer tokens by the keys and rules of one route.
class TokenJudge {
 public:
  virtual ~TokenJudge() = default;
  // Refused with token_invalid, or with jwks_unavailable when there are no keys to judge it by.
  virtual std::variant<VerifiedToken, Refusal> judge(std::string_view token) const = 0;
};

// All of it may be null.
struct Caller {
  const TokenJudge* tokens = nullptr;
  const CertificateName* certificate = nullptr; // verified in the TLS handshake
  const Accounts* accounts = nullptr;
};

} // namespace oncekey
