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

} // namespace

std::string masked_url(std::string_view url) {
  const std::size_t scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return std::string(url);
  const std::size_t begin = scheme_end + 3;
  const std::size_t question = std::min(url.find('?', begin), url.size());
  std::string out(url.substr(0, begin));
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
