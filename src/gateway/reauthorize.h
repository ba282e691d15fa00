// reauthorize: before a replay, the upstream is asked whether the caller's credentials still hold. A replay never
// reaches the API that would refuse a revoked token.
#pragma once

#include "gateway/thread.h"

namespace oncekey {

class Replier;

// Whether the caller may still see a stored answer; always where the route does not ask (`reauthorize`). If not, the
// client has been told so. The replier has a client.
Task<bool> may_see_answer(GatewayThread& thread, const Route& route, Replier& replier);

} // namespace oncekey
