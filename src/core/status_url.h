// status_url: where the answer of an operation is fetched whose client did not want to wait (`Prefer: respond-async`).
//
// The URL is made of what names the operation: method, path and key. So one key always has the same URL, and nothing
// more has to be stored. It does not say whose operation it is: whoever asks is looked up under their own account, and
// finds nothing under another's URL.
#pragma once

#include <oncekey/headers.h>

#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

inline constexpr std::string_view kStatusPrefix = "/.well-known/oncekey/operations/";

struct OperationName {
  std::string method;
  std::string path; // in normal form, without the query
  std::string key;
};

// Whether a path in normal form is the gateway's to answer here, whatever follows the prefix.
bool is_status_path(std::string_view path);
std::string status_url(std::string_view method, std::string_view path, std::string_view key);
// Nothing if the path is no such URL, or not spelled as status_url() does.
std::optional<OperationName> parse_status_url(std::string_view path);

// Whether a request asks not to be kept waiting (RFC 7240).
bool prefers_async(const Headers& headers);
// Its other preferences, for the upstream, which must not answer later in its turn. Empty if there are none.
std::string other_preferences(const Headers& headers);

} // namespace oncekey
