// problems: combinations of settings that are well-formed each, and together unsafe or without effect.
//
// A problem names the route and the setting it is about, not a line: the same checks serve a file, where the reader
// knows on which line the setting stands, and flags, where there are no lines.
#pragma once

#include "config/config.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct Problem {
  std::optional<std::size_t> route; // index into Config::routes; nothing for a setting of the whole gateway
  // As spelled in the file; the problem is shown at the first of them that was written down.
  std::vector<std::string> settings;
  std::string text; // what is wrong and what to do
  // The text for a gateway that is started by flags, where `text` names settings that only a file can have; else empty.
  std::string text_for_flags{};
};

std::vector<Problem> problems_of(const Config& config);
// Of the files and folders that it names (certificates, keys, accounts, key sets, the folder of an embedded store):
// what `oncekey serve` would stop at. Nothing is made, changed, locked or connected to.
std::vector<Problem> problems_of_files(const Config& config);

// The name under which a problem names a setting of the webhook or destination with this index.
std::string setting_in(std::string_view list, std::size_t index, std::string_view setting);

} // namespace oncekey
