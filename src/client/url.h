// url: where a request goes.
#pragma once

#include <oncekey/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey {

struct Url {
  bool tls = false;
  std::string host; // without the brackets of an IPv6 address
  std::uint16_t port = 80;
  std::string authority; // for Host: the port only where it is not the usual one
  std::string target;    // path and query, as written

  // Without the query, which may hold secrets: for messages and the journal.
  std::string shown() const;
};

// Strict: what a server could read in two ways is refused here, with a sentence that does not hold the URL's query.
Result<Url> parse_url(std::string_view text);

} // namespace oncekey
