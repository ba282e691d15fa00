#include "cli/server_options.h"

#include "admin/admin.h"
#include "cli/descriptors.h"

#include <utility>

namespace oncekey {
namespace {

ServerOptions options_of(const Config& config, std::shared_ptr<Shares> shares) {
  ServerOptions options;
  options.timeouts = {config.timeouts.request_headers, config.timeouts.request_body, config.timeouts.idle,
                      config.timeouts.write, config.limits.min_rate};
  options.max_header_bytes = config.limits.max_header_bytes;
  options.shares = std::move(shares);
  return options;
}

// For a listener that is not for clients.
std::shared_ptr<Shares> shares_of_few() {
  constexpr std::uint64_t kHeadBytesMax = 16u << 20;
  std::array<ShareLimit, kResources> limits{};
  // One address leaves half of them to the others.
  limits[static_cast<std::size_t>(Resource::connections)] = {kAdminConnectionsMax, kAdminConnectionsMax / 2,
                                                             kAdminConnectionsMax / 2, 0};
  limits[static_cast<std::size_t>(Resource::buffered_bytes)] = {kHeadBytesMax, kHeadBytesMax, kHeadBytesMax,
                                                                kHeadBytesMax};
  return std::make_shared<Shares>(limits);
}

ServerOptions options_of_few(const Config& config) {
  ServerOptions options = options_of(config, shares_of_few());
  options.silent_give_way = true;
  return options;
}

} // namespace

ServerOptions options_for_clients(const Config& config, std::shared_ptr<Shares> shares) {
  ServerOptions options = options_of(config, std::move(shares));
  options.trusted_proxies = config.trusted_proxies;
  options.tls_cert = config.tls_cert;
  options.tls_key = config.tls_key;
  options.client_ca = config.client_ca;
  return options;
}

ServerOptions options_for_operators(const Config& config) {
  ServerOptions options = options_of_few(config);
  options.tls_cert = config.admin_tls_cert;
  options.tls_key = config.admin_tls_key;
  options.setting_prefix = "admin_";
  options.client_ca = config.admin_client_ca;
  options.answer_headers = Admin::answer_headers();
  return options;
}

ServerOptions options_for_outbox(const Config& config) { return options_of_few(config); }

} // namespace oncekey
