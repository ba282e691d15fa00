// identity_rules: by which rules a request finds its record, and whether other rules would lose records.
//
// A record is found by a hash over account, key and, where the route says so, method and path. With another `scope`,
// `identity`, `key_from` and the like every hash is another one: the records are still there and no request finds them,
// so that each retry is executed again. A route that is gone, or that another one takes the requests of, has the same
// effect. New routes for requests that no route had lose nothing.
#pragma once

#include "config/config.h"

#include <oncekey/result.h>

#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// One route, in the order of the file.
struct IdentityRule {
  std::string path;
  std::vector<std::string> methods;
  PathCase path_case = PathCase::exact;
  std::string identity; // "scope=... identity=... key_from=..."; empty where nothing is kept (mode = "observe")
  friend bool operator==(const IdentityRule&, const IdentityRule&) = default;
};
using IdentityRules = std::vector<IdentityRule>;

IdentityRules identity_rules_of(const Config& config);

// What records made under the rules `before` would no longer be found under `after`, one sentence each; empty if all
// are found. Where globs overlap in ways that cannot be told apart, it says that records would be lost.
std::vector<std::string> lost_identities(const IdentityRules& before, const IdentityRules& after);

// One line a rule, for the store to remember. decode() is a fault for what encode() has not written.
std::string encode(const IdentityRules& rules);
Result<IdentityRules> decode_identity_rules(std::string_view text);

} // namespace oncekey
