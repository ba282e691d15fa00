#include "config/known_settings.h"

#include "config/settings.h"

namespace oncekey {

std::vector<std::string> known_settings() {
  std::vector<std::string> names{"path", "policy"};
  for (const auto& setting : gateway_settings()) names.emplace_back(setting.name);
  for (const auto& setting : policy_settings()) names.emplace_back(setting.name);
  for (const auto& setting : limit_settings()) names.push_back(fmt::format("limits.{}", setting.name));
  for (const auto& setting : timeout_settings()) names.push_back(fmt::format("timeouts.{}", setting.name));
  for (const auto& setting : webhook_settings()) names.push_back(fmt::format("webhook.{}", setting.name));
  for (const auto& setting : endpoint_settings()) names.push_back(fmt::format("destination.{}", setting.name));
  names.insert(names.end(), {"webhook.deliver_to", "destination.name", "destination.url"});
  return names;
}

} // namespace oncekey
