// suggestion: what somebody probably meant when a name is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace oncekey {

// "; did you mean \"listen\"?" for the nearest of the known names, or nothing when none is near.
std::string did_you_mean(std::string_view written, std::span<const std::string_view> known);

} // namespace oncekey
