#include "http/door.h"

#include "base/crypto.h"
#include "http/task.h"

#include <boost/asio/ip/address.hpp>

namespace oncekey {
namespace {

constexpr std::string_view kBearer = "Bearer ";

bool names_this_machine(std::string_view host) {
  const bool v6 = host.starts_with('[');
  const std::string name(v6 ? host.substr(1, host.find(']') - 1) : host.substr(0, host.find(':')));
  error_code not_an_address;
  const auto address = asio::ip::make_address(name, not_an_address);
  return not_an_address ? name == "localhost" : address.is_loopback();
}

} // namespace

std::optional<TurnedAway> turned_away(const Headers& headers, std::string_view token, std::string_view name) {
  if (token.empty()) {
    if (names_this_machine(headers.get("Host").value_or("localhost"))) return std::nullopt;
    return TurnedAway{403, "without a token this listener answers to loopback host names only"};
  }
  const std::string_view given = headers.get("Authorization").value_or("");
  if (starts_with_ignoring_case(given, kBearer) && equal_in_constant_time(given.substr(kBearer.size()), token)) {
    return std::nullopt;
  }
  return TurnedAway{401, "send the " + std::string(name) + " token: Authorization: Bearer TOKEN"};
}

} // namespace oncekey
