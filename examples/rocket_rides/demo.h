// One command that shows it all: rides are booked, the API is killed in the middle, and in the end every ride was
// charged once and has one receipt.
#pragma once

#include <string>

namespace rides {

// Starts everything on free ports, with data in a temporary folder unless a database is named. Tells what happens, and
// returns 0 only if every count is right.
int run_demo(const std::string& database);

} // namespace rides
