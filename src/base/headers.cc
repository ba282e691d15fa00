#include <oncekey/headers.h>

#include <cstring>
#include <utility>

namespace oncekey {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

} // namespace

bool equal_length_ignoring_case(const char* a, const char* b, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) {
    if (a[i] != b[i] && lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && equal_ignoring_case(text.substr(0, prefix.size()), prefix);
}

void Headers::add(std::string_view name, std::string_view value) {
  const auto at = static_cast<std::uint32_t>(bytes_.size());
  const auto name_length = static_cast<std::uint32_t>(name.size());
  const auto value_length = static_cast<std::uint32_t>(value.size());
  // One growth and four copies: this runs some thirty times a request.
  bytes_.resize(bytes_.size() + name.size() + value.size() + 4);
  char* out = bytes_.data() + at;
  std::memcpy(out, name.data(), name.size());
  std::memcpy(out + name.size(), ": ", 2);
  value.copy(out + name.size() + 2, value.size());
  std::memcpy(out + name.size() + 2 + value.size(), "\r\n", 2);
  spans_.push_back({at, name_length, at + name_length + 2, value_length});
  marks_ |= mark_of(name);
}

void Headers::add(const Headers& from, std::size_t index) {
  const Span& span = from.spans_[index];
  add_line({from.bytes_.data() + span.name_at, span.line_length()}, span.name_length);
}

void Headers::add_line(std::string_view line, std::size_t name_length) {
  const auto at = static_cast<std::uint32_t>(bytes_.size());
  const auto length = static_cast<std::uint32_t>(name_length);
  bytes_.append(line);
  spans_.push_back({at, length, at + length + 2, static_cast<std::uint32_t>(line.size()) - length - 4});
  marks_ |= mark_of(line.substr(0, name_length));
}

std::optional<Headers> Headers::from_lines(std::string lines) {
  Headers headers;
  std::size_t at = 0;
  while (at < lines.size()) {
    const std::size_t end = lines.find("\r\n", at);
    const std::size_t colon = lines.find(": ", at);
    if (end == std::string::npos || colon == std::string::npos || colon > end || colon == at) return std::nullopt;
    headers.spans_.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(colon - at),
                              static_cast<std::uint32_t>(colon + 2), static_cast<std::uint32_t>(end - colon - 2)});
    headers.marks_ |= mark_of(std::string_view(lines).substr(at, colon - at));
    at = end + 2;
  }
  headers.bytes_ = std::move(lines);
  return headers;
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const Span& span : spans_) {
    if (span.name_length != name.size()) continue;
    if (!equal_length_ignoring_case(bytes_.data() + span.name_at, name.data(), name.size())) continue;
    return std::string_view(bytes_.data() + span.value_at, span.value_length);
  }
  return std::nullopt;
}

std::size_t Headers::count(std::string_view name) const {
  std::size_t found = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) found += equal_ignoring_case((*this)[i].name, name) ? 1 : 0;
  return found;
}

void Headers::clear() {
  bytes_.clear();
  spans_.clear();
  marks_ = 0;
}

void Headers::reserve(std::size_t bytes, std::size_t fields) {
  bytes_.reserve(bytes);
  spans_.reserve(fields);
}

} // namespace oncekey
