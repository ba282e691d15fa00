#include "core/status_url.h"

#include "base/ascii.h"
#include "base/crypto.h"

#include <algorithm>

namespace oncekey {
namespace {

constexpr std::string_view kRespondAsync = "respond-async";

// The name of a preference, without its value and parameters.
std::string_view preference_name(std::string_view preference) {
  return trimmed(preference.substr(0, preference.find_first_of("=;")));
}

template <class Visit>
void for_each_preference(const Headers& headers, Visit visit) {
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (equal_ignoring_case(field.name, "Prefer")) for_each_list_item(field.value, visit);
  }
}

} // namespace

bool is_status_path(std::string_view path) {
  return path.starts_with(kStatusPrefix) || path == kStatusPrefix.substr(0, kStatusPrefix.size() - 1);
}

std::string status_url(std::string_view method, std::string_view path, std::string_view key) {
  std::string name;
  name.append(method).append(" ").append(path).append(" ").append(key);
  std::string encoded = base64_encode(name);
  while (encoded.ends_with('=')) encoded.pop_back();
  std::replace(encoded.begin(), encoded.end(), '+', '-');
  std::replace(encoded.begin(), encoded.end(), '/', '_');
  return std::string(kStatusPrefix) + encoded;
}

std::optional<OperationName> parse_status_url(std::string_view path) {
  if (!path.starts_with(kStatusPrefix)) return std::nullopt;
  std::string name;
  if (!base64url_decode(path.substr(kStatusPrefix.size()), name)) return std::nullopt;
  // The key is echoed in headers, where a line break would end one and begin another.
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
  if (std::any_of(name.begin(), name.end(), is_control)) return std::nullopt;
  const std::size_t first = name.find(' ');
  if (first == std::string::npos) return std::nullopt;
  const std::size_t second = name.find(' ', first + 1);
  if (second == std::string::npos) return std::nullopt;
  OperationName operation{name.substr(0, first), name.substr(first + 1, second - first - 1), name.substr(second + 1)};
  if (operation.key.empty() || status_url(operation.method, operation.path, operation.key) != path) return std::nullopt;
  return operation;
}

bool prefers_async(const Headers& headers) {
  bool found = false;
  for_each_preference(headers, [&](std::string_view preference) {
    if (equal_ignoring_case(preference_name(preference), kRespondAsync)) found = true;
  });
  return found;
}

std::string other_preferences(const Headers& headers) {
  std::string others;
  for_each_preference(headers, [&](std::string_view preference) {
    if (equal_ignoring_case(preference_name(preference), kRespondAsync)) return;
    if (!others.empty()) others += ", ";
    others += preference;
  });
  return others;
}

} // namespace oncekey
