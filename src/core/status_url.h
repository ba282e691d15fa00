// status_url: where a client that did not want to wait (`Prefer: respond-async`) fetches the answer.
//
// The URL consists of what names the operation: method, path and key. So one key always has the same URL, and nothing
// more has to be stored. The URL does not name the account: a caller is looked up under its own account, and finds
// nothing under the URL of another.
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

// Whether the gateway itself answers this path (in normal form), whatever follows the prefix.
bool is_status_path(std::string_view path);
std::string status_url(std::string_view method, std::string_view path, std::string_view key);
// Nothing if the path is not a status URL, or is spelled differently from what status_url() makes.
std::optional<OperationName> parse_status_url(std::string_view path);

// Whether a request has the preference respond-async (RFC 7240).
bool prefers_async(const Headers& headers);
// Its other preferences, for the upstream: without respond-async, so that the upstream does not answer later as well.
// Empty if there are none.
std::string other_preferences(const Headers& headers);

} // namespace oncekey
