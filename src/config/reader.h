// reader: from TOML to a Config, collecting every finding on the way instead of stopping at the first.
#pragma once

#include "config/config.h"
#include "config/findings.h"
#include "config/problems.h"
#include "config/settings.h"

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oncekey {

// Reads one table and is then spent. Settings without a position (those that flags put into the table) are reported
// by the flag's name, all others as FILE:LINE.
class Reader {
 public:
  Reader(std::string_view file_name, NamedFiles files) : file_name_(file_name), files_(files) {}

  // The configuration and what is wrong with it, in the order of the file.
  ReadConfig read(const toml::table& file);

 private:
  using RouteIndex = std::optional<std::size_t>;

  void read_top(const toml::table& file);
  void read_routes(const toml::table& file);
  void read_route(const toml::table* table, unsigned line);
  // Every table of [[name]], each with its line.
  template <class Read>
  void read_list(const toml::table& file, std::string_view name, Read read);
  void read_webhook(const toml::table& table, unsigned line);
  void read_destination(const toml::table& table, unsigned line);
  // True if the setting was one of an endpoint's.
  bool read_endpoint_setting(std::string_view name, const toml::node& value, unsigned line, Endpoint& endpoint);
  void read_endpoint_url(std::string_view name, const toml::node& value, unsigned line, Endpoint& endpoint);
  void check_endpoint(const Endpoint& endpoint, const toml::table& table, unsigned line);
  void check_webhook(const Webhook& webhook, const toml::table& table, unsigned line);
  template <class Target>
  void read_section(const toml::table& file, std::string_view name, std::span<const Setting<Target>> settings,
                    Target& target);
  // Reads the value and remembers where it stood.
  template <class Target>
  void read_setting(const Setting<Target>& setting, std::string name, const toml::node& value, unsigned line,
                    RouteIndex route, Target& target);
  Policy starting_policy(const toml::table* route_table);
  void apply_defaults(Policy& policy);

  void unknown_at_the_top(std::string_view name, unsigned line);
  void unknown_in_a_route(std::string_view name, unsigned line, std::size_t route);
  void add_finding(unsigned line, std::string_view setting, std::string_view text, RouteIndex route);
  // Adds the problem, unless a setting that it may depend on could not be read.
  void add_problem(const Problem& problem);
  void add_finding_of(const Problem& problem);
  ReadConfig finish();

  std::string file_name_;
  NamedFiles files_;
  Config config_;
  const toml::table* top_ = nullptr;
  std::vector<Finding> findings_;
  // Where each setting stood, and each route. Those of webhooks and destinations are named as by setting_in().
  std::map<std::pair<RouteIndex, std::string>, unsigned> lines_;
  std::vector<unsigned> route_lines_;
  // Routes (nothing: the top) with a setting that could not be read. Their combinations are not checked: the settings
  // are not what was meant.
  std::set<RouteIndex> unread_;
};

} // namespace oncekey
