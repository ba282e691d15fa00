// Reason phrases of HTTP statuses (RFC 9110, section 15).
#pragma once

#include <string_view>

namespace oncekey {

// "Refused", "Error" or another plain word for statuses that have none.
std::string_view reason_of(int status);

} // namespace oncekey
