// masked_url: a URL as it may be shown. Passwords stay out of logs, pages and messages.
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

// "redis://app:secret@host/0?password=x" becomes "redis://app:***@host/0?password=***".
std::string masked_url(std::string_view url);

} // namespace oncekey
