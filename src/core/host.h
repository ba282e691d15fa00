// host: the name a request was sent to, in one spelling.
#pragma once

#include <oncekey/headers.h>

#include <string>
#include <string_view>

namespace oncekey {

// The host name of the Host field (the parser has put the authority of an absolute target there): lower case, without
// port and trailing dot, percent-encodings of letters, digits, `-`, `.`, `_` and `~` decoded. Empty without a Host
// field. A view of the field, or of `storage` where the field is spelled in another way.
std::string_view host_name(const Headers& headers, std::string& storage);

} // namespace oncekey
