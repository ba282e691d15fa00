// core_rules: a runner's policy and requests as core's rules take them: which record a request belongs to, and what it
// asks for.
#pragma once

#include "base/crypto.h"
#include "core/policy.h"

#include <oncekey/operation.h>
#include <oncekey/record.h>
#include <oncekey/runner.h>

#include <string>
#include <variant>

namespace oncekey::phases {

Policy policy_of(const RunnerPolicy& rules);

struct RequestIdentity {
  RecordId id;
  Fingerprint fingerprint;
  std::string key; // as it is compared: without the quotes the policy's syntax allows
};

// The same request is refused on both databases alike: Postgres keeps no text that is not UTF-8 or has a zero byte.
std::variant<RequestIdentity, KeyInvalid, RequestInvalid> identify(const Policy& policy,
                                                                   const OperationRequest& request,
                                                                   const KeyedHash& hash);

} // namespace oncekey::phases
