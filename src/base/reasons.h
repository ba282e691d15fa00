// reasons: the reason phrases of HTTP statuses (RFC 9110, section 15).
#pragma once

#include <string_view>

namespace oncekey {

// Empty for a status that has none.
std::string_view reason_of(int status);

} // namespace oncekey
