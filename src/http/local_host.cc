#include "http/local_host.h"

#include "http/task.h"

#include <boost/asio/ip/address.hpp>

#include <string>

namespace oncekey {

bool names_this_machine(std::string_view host) {
  const bool v6 = host.starts_with('[');
  const std::string name(v6 ? host.substr(1, host.find(']') - 1) : host.substr(0, host.find(':')));
  error_code not_an_address;
  const auto address = asio::ip::make_address(name, not_an_address);
  return not_an_address ? name == "localhost" : address.is_loopback();
}

} // namespace oncekey
