// json_members: the members of one JSON object, for texts that decide who a caller is.
//
// A name that occurs twice, at any depth, makes the text unreadable: of two readers one would take the first and the
// other the last.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct JsonMember {
  enum class Kind {
    string, // `text` is the decoded string
    number, // `text` is the number as it was written
    list,   // `texts` are its strings, if it holds nothing else
    other,
  };
  Kind kind = Kind::other;
  std::string text;
  std::vector<std::string> texts;
};

using JsonMembers = std::map<std::string, JsonMember, std::less<>>;

// Nothing if the text is not one object, is beyond the limits of json_scan.h, or has a name twice.
std::optional<JsonMembers> read_members(std::string_view json);

} // namespace oncekey
