#include "base/masked_url.h"

#include <algorithm>

namespace oncekey {
namespace {

constexpr std::string_view kMask = "***";

std::string masked_query(std::string_view query) {
  std::string out;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const std::size_t equals = pair.find('=');
    const std::string_view name = pair.substr(0, equals);
    if (equals != std::string_view::npos && (name == "password" || name == "sslpassword")) {
      out.append(name).append("=").append(kMask);
    } else {
      out.append(pair);
    }
    if (end == query.size()) break;
    out.push_back('&');
    query.remove_prefix(end + 1);
  }
  return out;
}

// Behind the colon of a host stands a port, which is a number. Anything else there is a password.
bool only_ports_behind_colons(std::string_view address) {
  bool bracketed = false, behind_colon = false;
  for (const char c : address) {
    if (c == '[' || c == ']') {
      bracketed = c == '[';
    } else if (c == ',' || c == '/') {
      behind_colon = false;
    } else if (c == ':' && !bracketed) {
      behind_colon = true;
    } else if (behind_colon && (c < '0' || c > '9')) {
      return false;
    }
  }
  return true;
}

bool is_query(std::string_view text) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    const std::string_view name = pair.substr(0, pair.find('='));
    const auto of_a_name = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
    if (name.empty() || name.size() == pair.size() || !std::all_of(name.begin(), name.end(), of_a_name)) return false;
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
  }
  return true;
}

} // namespace

std::string masked_url(std::string_view url) {
  const std::size_t scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) {
    // Not a URL with a host, but perhaps meant to be one, or libpq's "host=… password=…".
    const std::size_t named = std::min(url.find("password="), url.find("password ="));
    const std::size_t at = url.rfind('@');
    if (named != std::string_view::npos) return std::string(url.substr(0, named)).append("password=").append(kMask);
    if (at == std::string_view::npos || url.find(':') == url.rfind(':', at)) return std::string(url);
    const std::size_t second_colon = url.find(':', url.find(':') + 1);
    return std::string(url.substr(0, second_colon + 1)).append(kMask).append(url.substr(at));
  }
  const std::size_t begin = scheme_end + 3;
  const std::size_t question = std::min(url.find('?', begin), url.size());
  std::string out(url.substr(0, begin));
  const std::string_view query = url.substr(std::min(question + 1, url.size()));
  const std::string_view before = url.substr(begin, question - begin);
  const std::string_view hosts = before.substr(before.rfind('@') + 1); // all of it if there is none
  if (query.find('@') != std::string_view::npos && !(is_query(query) && only_ports_behind_colons(hosts))) {
    // The question mark is part of a password. Where that ends cannot be told, so nothing behind it is shown.
    return out.append(before.substr(0, before.find_first_of(":/"))).append(":").append(kMask);
  }
  // A password may hold any character, also '/' and '@' by mistake: everything up to the last '@' counts as user info.
  std::string_view address = url.substr(begin, question - begin);
  const std::size_t at = address.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view user = address.substr(0, std::min(address.find(':'), at));
    out.append(user);
    if (user.size() < at) out.append(":").append(kMask);
    address.remove_prefix(at);
  }
  out.append(address);
  if (question < url.size()) out.append("?").append(masked_query(url.substr(question + 1)));
  return out;
}

} // namespace oncekey
