#include "workers/error_text.h"

#include <cstddef>

namespace oncekey {
namespace {

// Enough for an operator; the end of a longer message says little.
constexpr std::size_t kErrorTextMax = 1000;

unsigned char byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// The length in bytes of the UTF-8 character at the front; 0 if there is none. Overlong forms, surrogates and code
// points above U+10FFFF are not characters.
std::size_t character_length(std::string_view text) {
  const unsigned char first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte_at(text, 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool too_far = first == 0xf4 && second >= 0x90;
  return overlong || surrogate || too_far ? 0 : length;
}

bool visible(char c) { return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t'; }

} // namespace

std::string error_text(std::string_view said) {
  std::string out;
  while (!said.empty()) {
    const std::size_t length = character_length(said);
    const bool keep = length > 1 || (length == 1 && visible(said[0]));
    if (out.size() + (keep ? length : 1) > kErrorTextMax) break;
    if (keep) {
      out += said.substr(0, length);
    } else {
      out += '?';
    }
    said.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

} // namespace oncekey
