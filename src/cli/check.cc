#include "base/durations.h"
#include "cli/config_as_serve.h"
#include "cli/subcommand.h"
#include "cli/views.h"
#include "config/load.h"
#include "core/policy_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace oncekey {
namespace {

namespace json = boost::json;

template <class Source>
std::vector<std::string> texts_of(const std::vector<Source>& sources) {
  std::vector<std::string> texts;
  for (const Source& source : sources) texts.push_back(to_string(source));
  return texts;
}

template <class Source>
std::string joined(const std::vector<Source>& sources) {
  return fmt::format("{}", fmt::join(texts_of(sources), ","));
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
    if (several) rows.back().push_back(upstream_of(config, route).origin());
  }
  return format_table(rows);
}

std::string table_of_endpoints(const Config& config) {
  std::vector<std::vector<std::string>> rows{
      {"MESSAGES", "PROVIDER", "AT ONCE", "TIMEOUT", "BUDGET", "REMEMBERED", "DELIVERED TO"}};
  const auto add = [&](const Endpoint& endpoint, const std::string& provider) {
    rows.push_back({endpoint.name, provider, std::to_string(endpoint.concurrency), format_duration(endpoint.timeout),
                    format_duration(endpoint.budget), format_duration(endpoint.remember),
                    endpoint.url.origin() + endpoint.url.target});
  };
  for (const Webhook& webhook : config.webhooks) add(webhook.endpoint, webhook.provider);
  for (const Endpoint& destination : config.destinations) add(destination, "-");
  return rows.size() == 1 ? "" : format_table(rows);
}

json::array json_of_routes(const Config& config) {
  json::array routes;
  for (const Route& route : config.routes) {
    const Policy& policy = route.policy;
    routes.push_back(json::object{{"route", route.name},
                                  {"policy", policy.name},
                                  {"methods", json::value_from(policy.methods)},
                                  {"key", to_string(policy.key)},
                                  {"key_from", json::value_from(texts_of(policy.key_from))},
                                  {"scope", json::value_from(texts_of(policy.scope))},
                                  {"lease", format_duration(policy.lease)},
                                  {"retention", format_duration(policy.retention)},
                                  {"on_unknown", to_string(policy.on_unknown)},
                                  {"on_abandoned", to_string(policy.on_abandoned)},
                                  {"mode", to_string(policy.mode)},
                                  {"upstream", upstream_of(config, route).origin()}});
  }
  return routes;
}

void print_json(const ReadConfig& read, const std::vector<std::string>& warnings, std::ostream& out) {
  json::array problems;
  for (const Finding& finding : read.findings) {
    json::object one{{"problem", finding.text}};
    if (finding.line != 0) one["line"] = finding.line;
    if (!finding.setting.empty()) one["setting"] = finding.setting;
    problems.push_back(std::move(one));
  }
  json::object all{{"file", read.file_name},
                   {"ok", read.findings.empty()},
                   {"problems", std::move(problems)},
                   {"warnings", json::value_from(warnings)}};
  if (read.findings.empty()) all["routes"] = json_of_routes(read.config);
  out << json::serialize(all) << "\n";
}

} // namespace

int run_check(const std::string& path, Output output, const Console& console) {
  ServeFlags flags;
  flags.config = path;
  const ReadConfig read = read_config_as_serve(flags);
  const Config& config = read.config;
  std::vector<std::string> warnings;
  if (read.findings.empty()) {
    warnings = warnings_of(config);
    for (std::string& more : warnings_of_files(config)) warnings.push_back(std::move(more));
  }
  const int code = read.findings.empty() ? 0 : 1;
  if (output == Output::json) {
    print_json(read, warnings, console.out);
    return code;
  }
  for (const Finding& finding : read.findings) console.err << shown(finding, path) << "\n";
  if (code != 0) return code;
  for (const std::string& warning : warnings) console.err << path << ": warning: " << warning << "\n";
  const std::size_t routes = config.routes.size();
  console.out << fmt::format("{}: ok: {} {}\n", path, routes, routes == 1 ? "route" : "routes")
              << table_of_routes(config) << table_of_endpoints(config);
  return code;
}

} // namespace oncekey
