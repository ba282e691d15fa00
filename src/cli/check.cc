#include "cli/check.h"

#include "base/durations.h"
#include "base/line_file.h"
#include "cli/table.h"
#include "config/config.h"
#include "config/identity_files.h"
#include "core/policy_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

namespace oncekey {
namespace {

template <class Source>
std::string joined(const std::vector<Source>& sources) {
  std::vector<std::string> texts;
  for (const Source& source : sources) texts.push_back(to_string(source));
  return fmt::format("{}", fmt::join(texts, ","));
}

std::string table_of_routes(const Config& config) {
  const bool several = upstreams_of(config).size() > 1;
  std::vector<std::vector<std::string>> rows{
      {"ROUTE", "POLICY", "METHODS", "KEY", "SCOPE", "LEASE", "RETENTION", "UNKNOWN", "ABANDONED", "MODE"}};
  if (several) rows.back().emplace_back("UPSTREAM");
  for (const Route& route : config.routes) {
    const Policy& policy = route.policy;
    rows.push_back({route.name, policy.name, fmt::format("{}", fmt::join(policy.methods, ",")),
                    fmt::format("{} {}", to_string(policy.key), joined(policy.key_from)), joined(policy.scope),
                    format_duration(policy.lease), format_duration(policy.retention),
                    std::string(to_string(policy.on_unknown)), std::string(to_string(policy.on_abandoned)),
                    std::string(to_string(policy.mode))});
    if (several) rows.back().push_back(to_string(upstream_of(config, route)));
  }
  return format_table(rows);
}

void add_endpoint(std::vector<std::vector<std::string>>& rows, const std::string& what, const std::string& provider,
                  const Endpoint& endpoint) {
  rows.push_back({what, provider, std::to_string(endpoint.concurrency), format_duration(endpoint.timeout),
                  format_duration(endpoint.budget), format_duration(endpoint.remember),
                  to_string(endpoint.url) + endpoint.target});
}

std::string table_of_endpoints(const Config& config) {
  std::vector<std::vector<std::string>> rows{
      {"MESSAGES", "PROVIDER", "AT ONCE", "TIMEOUT", "BUDGET", "REMEMBERED", "DELIVERED TO"}};
  for (const Webhook& webhook : config.webhooks)
    add_endpoint(rows, webhook.endpoint.name, webhook.provider, webhook.endpoint);
  for (const Endpoint& destination : config.destinations) add_endpoint(rows, destination.name, "-", destination);
  return rows.size() == 1 ? "" : format_table(rows);
}

} // namespace

int run_check(const std::string& path, std::ostream& out, std::ostream& err) {
  const auto config = load_config(path);
  if (!config) {
    err << config.fault().message << "\n";
    return 1;
  }
  if (const Status read = check_identity_files(*config); !read) {
    err << path << ": " << read.fault().message << "\n";
    return 1;
  }
  const Status access_log = config->access_log == "off" ? ok_status() : LineFile::check(config->access_log);
  if (!access_log) {
    err << path << ": access_log: " << access_log.fault().message << "\n";
    return 1;
  }
  for (const std::string& warning : warnings_of(*config)) err << path << ": warning: " << warning << "\n";
  const std::size_t routes = config->routes.size();
  out << fmt::format("{}: ok: {} {}\n", path, routes, routes == 1 ? "route" : "routes") << table_of_routes(*config)
      << table_of_endpoints(*config);
  return 0;
}

int run_check(const std::string& path) { return run_check(path, std::cout, std::cerr); }

} // namespace oncekey
