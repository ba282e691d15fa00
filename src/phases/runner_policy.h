// runner_policy: a RunnerPolicy as the Policy that core's rules take.
#pragma once

#include "core/policy.h"

#include <oncekey/runner.h>

namespace oncekey::phases {

Policy policy_of(const RunnerPolicy& rules);

} // namespace oncekey::phases
