#include "http/door.h"

#include "base/crypto.h"
#include "net/socket_address.h"

namespace oncekey {

constexpr std::string_view kBearer = "Bearer ";

Credential credential_of(const Headers& headers, std::string_view token) {
  std::optional<std::string_view> given;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    if (!equal_ignoring_case(headers[i].name, "Authorization")) continue;
    if (given) return Credential::doubled;
    given = headers[i].value;
  }
  if (!given) return Credential::none;
  const bool right = !token.empty() && starts_with_ignoring_case(*given, kBearer) &&
                     equal_in_constant_time(given->substr(kBearer.size()), token);
  return right ? Credential::right : Credential::wrong;
}

bool names_this_machine(const Headers& headers) {
  const std::string_view host = headers.get("Host").value_or("localhost");
  const bool v6 = host.starts_with('[');
  const std::string name(v6 ? host.substr(1, host.find(']') - 1) : host.substr(0, host.find(':')));
  const auto address = parse_ip(name);
  return address ? address->is_loopback() : name == "localhost";
}

std::string token_wanted(std::string_view name) {
  return "send the " + std::string(name) + " token: Authorization: Bearer TOKEN";
}

std::optional<TurnedAway> turned_away(const Headers& headers, std::string_view token, std::string_view name) {
  if (token.empty()) {
    if (names_this_machine(headers)) return std::nullopt;
    return TurnedAway{403, std::string(kForeignHost)};
  }
  switch (credential_of(headers, token)) {
    case Credential::right:
      return std::nullopt;
    case Credential::doubled:
      return TurnedAway{400, std::string(kTwoCredentials)};
    case Credential::none:
    case Credential::wrong:
      break;
  }
  return TurnedAway{401, token_wanted(name)};
}

} // namespace oncekey
