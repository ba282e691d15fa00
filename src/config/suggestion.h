// suggestion: the known name that is nearest to an unknown one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace oncekey {

// "; did you mean \"listen\"?" for the nearest of the known names, or nothing when none is near.
std::string did_you_mean(std::string_view written, std::span<const std::string_view> known);

} // namespace oncekey
