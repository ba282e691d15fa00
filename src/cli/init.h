// init: `oncekey init [FILE]` writes a configuration to begin with, with a comment on each setting.
#pragma once

#include <iosfwd>
#include <string>

namespace oncekey {

// The text of it, for this upstream.
std::string first_config(const std::string& upstream);

// Writes it to a file that does not exist yet; "-" is `out`. 0, or 1 with the reason on `err`.
int run_init(const std::string& file, const std::string& upstream, std::ostream& out, std::ostream& err);
int run_init(const std::string& file, const std::string& upstream);

} // namespace oncekey
