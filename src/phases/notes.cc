#include "phases/notes.h"

#include "base/url.h"

#include <algorithm>

namespace oncekey::phases {
namespace {

std::string encoded(std::string_view text) {
  std::string out = percent_encoded(text);
  for (std::size_t at = out.find('~'); at != std::string::npos; at = out.find('~')) out.replace(at, 1, "%7E");
  return out;
}

// Strict: only what encoded() writes. Anything else in the column is damage.
std::optional<std::string> decoded(std::string_view text) {
  std::optional<std::string> plain = percent_decoded(text);
  if (plain && encoded(*plain) != text) plain.reset();
  return plain;
}

} // namespace

std::string encode_notes(const Notes& notes) {
  std::string out;
  for (const auto& [name, value] : notes) {
    if (!out.empty()) out.push_back('&');
    out += encoded(name) + "=" + encoded(value);
  }
  return out;
}

Result<Notes> decode_notes(std::string_view bytes) {
  Notes notes;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('&');
    const std::string_view pair = bytes.substr(0, end);
    bytes = end == std::string_view::npos ? std::string_view{} : bytes.substr(end + 1);
    const std::size_t equals = pair.find('=');
    const auto name = decoded(pair.substr(0, equals));
    const auto value = decoded(pair.substr(std::min(equals, pair.size() - 1) + 1));
    if (equals == std::string_view::npos || !name || !value) return corrupt("the notes of an operation do not parse");
    notes.insert_or_assign(*name, *value);
  }
  return notes;
}

} // namespace oncekey::phases
