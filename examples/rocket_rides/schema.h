// The application's own tables. Oncekey's stand beside them in the same database: that is the whole trick.
#pragma once

#include <oncekey/database.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rides {

// Makes Oncekey's tables and ours, if they are missing, with two riders: amy, whose card is good, and bob, whose card
// is declined. Any number of processes may do this at the same time. Throws std::runtime_error.
void prepare_database(oncekey::Database& database);

// Who sent the request: the token of "Authorization: Bearer TOKEN".
std::optional<std::int64_t> find_user(oncekey::Database& database, std::string_view token);

// As the JSON that GET /rides/ID answers with; nothing if that user has no such ride.
std::optional<std::string> find_ride(oncekey::Database& database, std::int64_t user, std::int64_t ride);

} // namespace rides
