// status_page: the URL under which an operation's answer is fetched whose client was told to come back for it.
#pragma once

#include "gateway/thread.h"

namespace oncekey {

Task<void> answer_status(GatewayThread& thread, Exchange& exchange);

} // namespace oncekey
