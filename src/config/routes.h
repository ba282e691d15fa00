// routes: comparisons of routes for the checks of a configuration; see glob_matches in config.h.
#pragma once

#include "config/config.h"

#include <string_view>

namespace oncekey {

// Whether every path that `narrow` matches is matched by `wide` too.
bool glob_covers(std::string_view wide, std::string_view narrow);

// Whether no request can reach `later` because `earlier`, which is asked first, takes all of its paths and methods.
bool shadows(const Route& earlier, const Route& later);

} // namespace oncekey
