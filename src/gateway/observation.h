// observation: mode = "observe". Everything is forwarded, and what enforcement would have done is only counted.
#pragma once

#include "gateway/admission.h"
#include "gateway/pass_through.h"
#include "gateway/replier.h"

namespace oncekey {

// A request that was admitted under a key.
Task<void> observe(GatewayThread& thread, PassThrough& pass_through, Admission& admission, Replier& replier);

} // namespace oncekey
