// A RunnerPolicy as the core's rules want it.
#pragma once

#include "core/policy.h"

#include <oncekey/runner.h>

namespace oncekey::phases {

Policy policy_of(const RunnerPolicy& rules);

} // namespace oncekey::phases
