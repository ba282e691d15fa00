// answers: helpers that the pages of the admin listener share.
#pragma once

#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

inline constexpr std::size_t kListMax = 10'000;

// {"error": "..."}
std::string problem(std::string_view message);
// What follows the question mark, and the value of a name in it.
std::string_view query_of(std::string_view target);
std::string_view query_value(std::string_view query, std::string_view name);
// The same with %XX decoded.
std::string decoded_query_value(std::string_view query, std::string_view name);
// The `limit` of a listing; `usual` where the query has none.
Result<std::size_t> limit_of(std::string_view query, std::size_t usual);

} // namespace oncekey
