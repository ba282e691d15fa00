// identity_memory: a store remembers by which rules its gateways find records, and a start with others is refused.
//
// With another scope, say, every record is still there and no request finds it: each retry would be executed again
// (config/identity_rules.h). So the first gateway on a store writes its rules down, and each later one compares.
//
// Gateways that share a store are replaced one after another. One that still has the rules of before may start again
// for an hour after they were replaced: it does what the others with its rules do at the same time.
#pragma once

#include "base/log.h"
#include "config/identity_rules.h"

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <string>

namespace oncekey {

enum class IdentityChange { refused, accepted };

// Compares with what the store behind `url` remembers, and writes the rules down where they are new. `now` is the
// store's time. A fault says what would be lost and what to do; the gateway must not start, or take the rules on, then.
// Blocks.
Status remember_identity(const std::string& url, const IdentityRules& rules, IdentityChange change, Time now, Log& log);

// The same on a text instead of a store: what to write in its place, or nothing if it can stay. For tests.
struct IdentityVerdict {
  std::optional<std::string> write;
  bool older = false;            // these are rules of before, allowed because their gateways are being replaced
  std::vector<std::string> lost; // what was accepted
};
enum class Sharing { one_gateway, many_gateways };
Result<IdentityVerdict> judge_identity(const std::string& remembered, const IdentityRules& rules, IdentityChange change,
                                       Sharing sharing, Time now);

} // namespace oncekey
