#include "config/reload_rules.h"

#include "config/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace oncekey {
namespace {

// The connections of an upstream are made at start.
bool is_upstream_setting(std::string_view setting) {
  return setting.starts_with("upstream") && setting != "upstream_timeout";
}

bool is_reloadable(std::string_view place, std::string_view setting) {
  if (place.starts_with("route ")) return !is_upstream_setting(setting);
  if (!place.empty()) return false; // limits, timeouts, webhooks, destinations
  if (setting == "route" || setting == "policy") return true;
  // Read anew for each request, for each connection, or when they are needed.
  static const std::set<std::string_view> kReloadable{
      "log_level",     "admin_token",   "admin_read_token", "admin_operators", "admin_hosts",  "outbox_token",
      "tls_cert",      "tls_key",       "admin_tls_cert",   "admin_tls_key",   "cors_origins", "encryption_key_file",
      "rate",          "burst",         "test_rate",        "test_burst",      "address_rate", "address_burst",
      "max_in_flight", "drain_timeout", "publish_policies"};
  // Webhooks go by it too.
  if (setting == "path_case") return false;
  return kReloadable.contains(setting) || find_setting(default_settings(), setting) != nullptr;
}

std::string shown_place(std::string_view place, std::string_view setting) {
  if (place.empty()) return std::string(setting);
  if (place.find(' ') == std::string_view::npos) return fmt::format("{}.{}", place, setting);
  return fmt::format("{}: {}", place, setting);
}

// Compares the secrets themselves: of a secret in a file or the environment, only the name stands in the configuration.
void compare_secrets(const Config& running, const Config& next, std::set<std::string>& reloadable,
                     std::set<std::string>& need_restart) {
  if (running.admin_token != next.admin_token) {
    // Without admin_token a start reads the token from a file or makes one. The old token must not stay valid.
    (next.admin_token.empty() ? need_restart : reloadable).insert("admin_token");
  }
  if (running.admin_read_token != next.admin_read_token) reloadable.insert("admin_read_token");
  if (running.outbox_token != next.outbox_token) reloadable.insert("outbox_token");
  if (running.store != next.store) need_restart.insert("store");
  for (std::size_t i = 0; i < std::min(running.webhooks.size(), next.webhooks.size()); ++i) {
    const Webhook& a = running.webhooks[i];
    const Webhook& b = next.webhooks[i];
    if (a.secrets != b.secrets) need_restart.insert(fmt::format("webhook {}: secrets", b.path));
    if (a.endpoint.authorization != b.endpoint.authorization)
      need_restart.insert(fmt::format("webhook {}: authorization", b.path));
  }
  for (std::size_t i = 0; i < std::min(running.destinations.size(), next.destinations.size()); ++i) {
    if (running.destinations[i].authorization != next.destinations[i].authorization)
      need_restart.insert(fmt::format("destination {}: authorization", i + 1));
  }
}

} // namespace

ConfigChanges changes_between(const ReadConfig& running, const ReadConfig& next) {
  std::set<std::string> reloadable;
  std::set<std::string> need_restart;
  const auto compare = [&](const WrittenSettings& these, const WrittenSettings& those) {
    for (const auto& [where, value] : these) {
      const auto found = those.find(where);
      if (found != those.end() && found->second == value) continue;
      const auto& [place, setting] = where;
      (is_reloadable(place, setting) ? reloadable : need_restart).insert(shown_place(place, setting));
    }
  };
  compare(running.written, next.written);
  compare(next.written, running.written);
  compare_secrets(running.config, next.config, reloadable, need_restart);
  // A listener cannot change between plain HTTP and TLS, nor an open store between clear and encrypted.
  for (const auto& [setting, before, after] :
       {std::tuple("tls_cert", &running.config.tls_cert, &next.config.tls_cert),
        std::tuple("admin_tls_cert", &running.config.admin_tls_cert, &next.config.admin_tls_cert),
        std::tuple("encryption_key_file", &running.config.encryption_key_file, &next.config.encryption_key_file)}) {
    if (before->empty() != after->empty()) need_restart.insert(setting);
  }
  return {{reloadable.begin(), reloadable.end()}, {need_restart.begin(), need_restart.end()}};
}

} // namespace oncekey
