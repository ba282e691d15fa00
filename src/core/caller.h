// caller: what the gateway knows of the sender of a request, besides the request itself, and the account it acts for.
#pragma once

#include "base/certificate.h"
#include "core/accounts.h"
#include "core/jwt.h"
#include "core/refusal.h"

#include <list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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

// The account behind a request, part by part, as the route's scope asks for it.
struct PrincipalPart {
  // Of its source. A claim that is a number has its own, so that 7 and "7" are two accounts; so have the issuer of a
  // token or certificate, which is a part beside the name it gave, and an account of the `accounts` file.
  std::string_view kind;
  const ScopeSource* source;
  bool present;
  std::string_view value;
};

// Views into the policy and the request it was found in. May be moved: the list keeps in place what the parts refer to.
struct Principal {
  std::vector<PrincipalPart> parts;
  std::list<std::string> decoded; // what stands in no header as it is
};

} // namespace oncekey
