#include "core/host.h"

#include "base/url.h"

#include <algorithm>

namespace oncekey {
namespace {

std::string_view without_port(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, std::min(authority.find(']'), authority.size() - 1) + 1);
  return authority.substr(0, authority.find(':'));
}

bool is_unreserved(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

void respell(std::string_view name, std::string& out) {
  out.clear();
  for (std::size_t at = 0; at < name.size(); ++at) {
    char c = name[at];
    if (c == '%' && at + 2 < name.size()) {
      const int high = hex_value(name[at + 1]);
      const int low = hex_value(name[at + 2]);
      if (high >= 0 && low >= 0 && is_unreserved(high * 16 + low)) {
        c = static_cast<char>(high * 16 + low);
        at += 2;
      }
    }
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c);
  }
}

} // namespace

std::string_view host_name(const Headers& headers, std::string& storage) {
  std::string_view name = without_port(headers.get("Host").value_or(std::string_view{}));
  if (std::any_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == '%'; })) {
    respell(name, storage);
    name = storage;
  }
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

} // namespace oncekey
