// ascii: letters, blanks and tokens as HTTP has them, whatever the locale.
#pragma once

#include <oncekey/headers.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace oncekey {

inline char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), lower_letter);
  return lower;
}

inline bool ends_with_ignoring_case(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && equal_ignoring_case(text.substr(text.size() - suffix.size()), suffix);
}

// Without the blanks around it.
inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t") {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

inline constexpr std::string_view kAlphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

inline bool consists_of(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

// RFC 9110: what the name of a method, a header or a cookie is made of.
inline bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return kAlphanumeric.find(c) != std::string_view::npos || kMarks.find(c) != std::string_view::npos;
  });
}

} // namespace oncekey
