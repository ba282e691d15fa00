// local_host: whether a Host field names this machine.
#pragma once

#include <string_view>

namespace oncekey {

// For listeners without a token. A browser sends the host it believes to talk to; names other than localhost and
// loopback addresses may have been pointed here by somebody's DNS.
bool names_this_machine(std::string_view host);

} // namespace oncekey
