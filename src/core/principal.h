// Principal: the account behind a request, part by part, as the route's scope asks for it.
#pragma once

#include "core/policy.h"

#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

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
