#include "config/flags.h"

#include "config/load.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

void add(std::vector<Override>& out, std::string setting, const std::optional<std::string>& value) {
  if (value) out.push_back({std::move(setting), *value});
}

std::vector<Override> allowed_beside_a_file(const ServeFlags& flags) {
  std::vector<Override> given;
  add(given, "listen", flags.listen);
  add(given, "admin", flags.admin);
  add(given, "upstream", flags.upstream);
  add(given, "store", flags.store);
  return given;
}

std::vector<Override> only_without_a_file(const ServeFlags& flags) {
  std::vector<Override> given;
  add(given, "admin_token", flags.admin_token);
  add(given, "upstream_ca", flags.upstream_ca);
  add(given, "tls_cert", flags.tls_cert);
  add(given, "tls_key", flags.tls_key);
  add(given, "require_durability", flags.require_durability);
  if (flags.threads) given.push_back({"threads", *flags.threads});
  add(given, "log_level", flags.log_level);
  add(given, "drain_timeout", flags.drain_timeout);
  add(given, "policy", flags.policy);
  if (!flags.scope.empty()) given.push_back({"scope", flags.scope});
  add(given, "lease", flags.lease);
  add(given, "retention", flags.retention);
  add(given, "upstream_timeout", flags.upstream_timeout);
  add(given, "wait", flags.wait);
  return given;
}

} // namespace

ReadConfig read_config(const ServeFlags& flags, NamedFiles files) {
  std::vector<Override> given = allowed_beside_a_file(flags);
  const std::vector<Override> rest = only_without_a_file(flags);
  std::vector<Finding> refused;
  if (flags.config) {
    for (const Override& flag : rest) {
      std::string name = flag.setting;
      std::replace(name.begin(), name.end(), '_', '-');
      refused.push_back(
          {0, flag.setting,
           fmt::format("--{}: contradicts --config: change {} in {} instead", name, flag.setting, *flags.config)});
    }
    if (!refused.empty()) return {*flags.config, {}, std::move(refused), {}};
    return read_config_file(*flags.config, given, files);
  }
  if (flags.admin_token && !flags.admin_token->starts_with("env:") && !flags.admin_token->starts_with("file:")) {
    refused.push_back({0, "admin_token",
                       "--admin-token: write env:NAME or file:PATH: an argument is visible to every user of the "
                       "machine"});
    return {"", {}, std::move(refused), {}};
  }
  given.insert(given.end(), rest.begin(), rest.end());
  return read_config_text("", "", given, files);
}

Result<Config> config_from_flags(const ServeFlags& flags) {
  return config_or_fault(read_config(flags, NamedFiles::left_alone));
}

} // namespace oncekey
