#include "config/reader.h"

#include "base/durations.h"
#include "config/delivery.h"
#include "config/named_files.h"
#include "config/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace oncekey {
namespace {

constexpr std::string_view kDefaultPolicy = "classic";
constexpr std::string_view kEverything = "/*";

template <class Target>
const Setting<Target>* find_setting(std::span<const Setting<Target>> settings, std::string_view name) {
  for (const Setting<Target>& setting : settings)
    if (setting.name == name) return &setting;
  return nullptr;
}

template <class Target>
void append_names(std::vector<std::string_view>& names, std::span<const Setting<Target>> settings) {
  for (const Setting<Target>& setting : settings) names.push_back(setting.name);
}

unsigned line_of(const toml::source_region& source) { return source.begin.line; }

std::string as_flag(std::string_view setting) {
  std::string flag = fmt::format("--{}", setting);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// The line of a setting that stands in the table, else the table's own.
unsigned line_in(const toml::table& table, std::string_view setting, unsigned line) {
  for (const auto& [key, value] : table)
    if (key.str() == setting) return line_of(key.source());
  return line;
}

// With * in the place of {id}, <id> and :id, as routers of web frameworks write what varies. Nothing if there is none.
std::optional<std::string> with_stars(std::string_view path) {
  std::string stars;
  bool found = false;
  std::size_t at = 0;
  while (at < path.size()) {
    const char c = path[at];
    const char closing = c == '{' ? '}' : c == '<' ? '>' : '\0';
    const bool named = c == ':' && at > 0 && path[at - 1] == '/' && at + 1 < path.size() && path[at + 1] != '/';
    if (closing == '\0' && !named) {
      stars += c;
      ++at;
      continue;
    }
    found = true;
    if (!stars.ends_with('*')) stars += '*';
    const std::size_t end = path.find(named ? '/' : closing, at);
    at = end == std::string_view::npos ? path.size() : named ? end : end + 1;
  }
  if (!found) return std::nullopt;
  return stars;
}

Result<std::string> as_route_path(const toml::node& node) {
  auto path = as_text(node);
  if (!path) return path;
  if (const auto stars = with_stars(*path))
    return invalid(
        fmt::format("\"{}\" would be taken literally and protect nothing: write * for a part that varies, as "
                    "in \"{}\"",
                    *path, *stars));
  if (path->front() != '/' && path->front() != '*')
    return invalid(fmt::format("\"{}\" matches nothing: a path begins with / (or with *)", *path));
  for (const char c : *path) {
    if (c == '?' || c == '#') return invalid("a path is compared without the query: leave out ? and #");
    if (c == ' ' || c == '\x7f' || (c > 0 && c < ' '))
      return invalid("a path holds no spaces or control characters; write them as %20");
  }
  std::string normal = normal_glob(*path);
  if (normal.empty())
    return invalid(
        fmt::format("\"{}\" is not in normal form: leave out dot segments, backslashes, `;parameters`, encoded slashes "
                    "and semicolons, and % without two digits; requests are compared without them",
                    *path));
  // Two stars match what one matches, and "/v1/**" is to have /v1 as "/v1/*" has.
  const auto both_stars = [](char a, char b) { return a == '*' && b == '*'; };
  normal.erase(std::unique(normal.begin(), normal.end(), both_stars), normal.end());
  return normal;
}

Result<Policy> as_policy(const toml::node& node) {
  const auto name = as_text(node);
  if (!name) return name.fault();
  if (auto policy = policy_by_name(*name)) return *policy;
  const std::vector<std::string_view> known(policy_names().begin(), policy_names().end());
  return invalid(
      fmt::format("unknown policy \"{}\"; use one of {}{}", *name, fmt::join(known, ", "), did_you_mean(*name, known)));
}

std::string text_of(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  return text.str();
}

// The tables of a list are told apart by what names them, so that a new one in front does not change the others.
void add_list(WrittenSettings& written, std::string_view list, const toml::array& tables, std::string_view named_by) {
  std::string order;
  for (const toml::node& node : tables) {
    const toml::table* const table = node.as_table();
    if (table == nullptr) continue;
    const toml::node* const name = table->get(named_by);
    const std::string place =
        fmt::format("{} {}", list, name != nullptr && name->is_string() ? **name->as_string() : "");
    std::string unique = place;
    for (int n = 2; written.contains({unique, std::string(named_by)}); ++n) unique = fmt::format("{}#{}", place, n);
    for (const auto& [key, value] : *table) written[{unique, std::string(key.str())}] = text_of(value);
    order += unique + "\n";
  }
  written[{"", std::string(list)}] = order;
}

WrittenSettings written_in(const toml::table& file) {
  WrittenSettings written;
  for (const auto& [key, value] : file) {
    const std::string name(key.str());
    if (const toml::table* const section = value.as_table()) {
      for (const auto& [setting, of_section] : *section)
        written[{name, std::string(setting.str())}] = text_of(of_section);
    } else if (const toml::array* const list = value.as_array(); list != nullptr && list->is_array_of_tables()) {
      add_list(written, name, *list, name == "destination" ? "name" : "path");
    } else {
      written[{"", name}] = text_of(value);
    }
  }
  return written;
}

} // namespace

ReadConfig Reader::read(const toml::table& file) {
  top_ = &file;
  read_top(file);
  read_section(file, "limits", limit_settings(), config_.limits);
  read_section(file, "timeouts", timeout_settings(), config_.timeouts);
  read_routes(file);
  read_list(file, "webhook", [this](const toml::table& table, unsigned line) { read_webhook(table, line); });
  read_list(file, "destination", [this](const toml::table& table, unsigned line) { read_destination(table, line); });
  for (const Problem& problem : problems_of(config_)) add_problem(problem);
  if (files_ == NamedFiles::looked_at) {
    // Reported even if other settings are wrong: each is about one file.
    for (const Problem& problem : problems_of_files(config_)) add_finding_of(problem);
  }
  return finish();
}

void Reader::read_top(const toml::table& file) {
  for (const auto& [key, value] : file) {
    const std::string_view name = key.str();
    const unsigned line = line_of(key.source());
    if (const auto* setting = find_setting(gateway_settings(), name)) {
      read_setting(*setting, std::string(name), value, line, std::nullopt, config_);
    } else if (name == "policy") {
      if (const auto policy = as_policy(value); !policy) add_finding(line, name, policy.fault().message, std::nullopt);
    } else if (may_be_a_default(name)) {
      // Read once here, so that a bad value is reported once and not for every route.
      Policy scratch;
      read_setting(*find_setting(policy_settings(), name), std::string(name), value, line, std::nullopt, scratch);
      // Requests that match no route are forwarded too.
      if (name == "upstream_timeout") config_.upstream_timeout = scratch.upstream_timeout;
      // Webhooks have paths too.
      if (name == "path_case") config_.path_case = scratch.path_case;
    } else if (name != "limits" && name != "timeouts" && name != "route" && name != "webhook" &&
               name != "destination") {
      unknown_at_the_top(name, line);
    }
  }
}

template <class Target>
void Reader::read_section(const toml::table& file, std::string_view name, std::span<const Setting<Target>> settings,
                          Target& target) {
  const toml::node* node = file.get(name);
  if (node == nullptr) return;
  const toml::table* section = node->as_table();
  if (section == nullptr) {
    add_finding(line_of(node->source()), name, fmt::format("is a section: write [{}] on a line of its own", name),
                std::nullopt);
    return;
  }
  for (const auto& [key, value] : *section) {
    const std::string full_name = fmt::format("{}.{}", name, key.str());
    const unsigned line = line_of(key.source());
    if (const auto* setting = find_setting(settings, key.str())) {
      read_setting(*setting, full_name, value, line, std::nullopt, target);
    } else {
      std::vector<std::string_view> known;
      append_names(known, settings);
      add_finding(line, full_name, fmt::format("no such setting{}", did_you_mean(key.str(), known)), std::nullopt);
    }
  }
}

void Reader::read_routes(const toml::table& file) {
  const toml::node* node = file.get("route");
  if (node == nullptr) {
    read_route(nullptr, 0);
    return;
  }
  const toml::array* routes = node->as_array();
  if (routes == nullptr || !routes->is_homogeneous<toml::table>()) {
    add_finding(line_of(node->source()), "route", "write [[route]], with two brackets: there can be several",
                std::nullopt);
    return;
  }
  for (const toml::node& route : *routes) read_route(route.as_table(), line_of(route.source()));
}

void Reader::read_route(const toml::table* table, unsigned line) {
  const std::size_t index = config_.routes.size();
  route_lines_.push_back(line);
  Route route;
  route.path = kEverything;
  route.policy = starting_policy(table);
  apply_defaults(route.policy);
  if (table != nullptr) {
    if (!table->contains("path")) add_finding(line, "path", "is missing: say which requests the route is for", index);
    for (const auto& [key, value] : *table) {
      const std::string_view name = key.str();
      const unsigned key_line = line_of(key.source());
      if (name == "path") {
        lines_[{index, "path"}] = key_line;
        if (const Status read = put(route.path, as_route_path(value)); !read)
          add_finding(key_line, name, read.fault().message, index);
      } else if (name == "upstream") {
        lines_[{index, "upstream"}] = key_line;
        const auto text = as_text(value);
        auto url = text ? parse_upstream(*text) : Result<UpstreamUrl>(text.fault());
        if (!url) add_finding(key_line, name, url.fault().message, index);
        if (url) route.upstream = std::move(url).value();
      } else if (name == "policy") {
        if (const auto policy = as_policy(value); !policy) add_finding(key_line, name, policy.fault().message, index);
      } else if (const auto* setting = find_setting(policy_settings(), name)) {
        read_setting(*setting, std::string(name), value, key_line, index, route.policy);
      } else {
        unknown_in_a_route(name, key_line, index);
      }
    }
  }
  const auto same_path = std::count_if(config_.routes.begin(), config_.routes.end(),
                                       [&](const Route& other) { return other.path == route.path; });
  route.name = same_path == 0 ? route.path : fmt::format("{}#{}", route.path, same_path + 1);
  config_.routes.push_back(std::move(route));
}

template <class Read>
void Reader::read_list(const toml::table& file, std::string_view name, Read read) {
  const toml::node* node = file.get(name);
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || !list->is_homogeneous<toml::table>()) {
    add_finding(line_of(node->source()), name,
                fmt::format("write [[{}]], with two brackets: there can be several", name), std::nullopt);
    return;
  }
  if (!list->empty()) lines_[{std::nullopt, std::string(name)}] = line_of(list->front().source());
  for (const toml::node& item : *list) read(*item.as_table(), line_of(item.source()));
}

bool Reader::read_endpoint_setting(std::string_view name, const toml::node& value, unsigned line, Endpoint& endpoint) {
  const auto* setting = find_setting(endpoint_settings(), name);
  if (setting == nullptr) return false;
  if (const Status read = setting->read(value, endpoint); !read) add_finding(line, name, read.fault().message, {});
  return true;
}

void Reader::read_endpoint_url(std::string_view name, const toml::node& value, unsigned line, Endpoint& endpoint) {
  const auto text = as_text(value);
  const auto url = text ? parse_target_url(*text) : Result<TargetUrl>(text.fault());
  if (!url) return add_finding(line, name, url.fault().message, {});
  endpoint.url = url->server;
  endpoint.target = url->target;
}

void Reader::check_endpoint(const Endpoint& endpoint, const toml::table& table, unsigned line) {
  const auto add = [&](std::string_view setting, std::string_view text) {
    add_finding(line_in(table, setting, line), setting, text, {});
  };
  const auto add_pair = [&](std::string_view setting, std::string text) {
    unread_.insert(std::nullopt);
    findings_.push_back({line_in(table, setting, line), std::string(setting), std::move(text)});
  };
  if (endpoint.budget >= endpoint.remember)
    add_pair(
        table.contains("budget") ? "budget" : "remember",
        fmt::format("budget ({}) is not shorter than remember ({}): a message would be forgotten while it is still "
                    "being delivered; make remember longer",
                    format_duration(endpoint.budget), format_duration(endpoint.remember)));
  if (endpoint.first_pause > endpoint.longest_pause)
    add_pair(table.contains("first_pause") ? "first_pause" : "longest_pause",
             fmt::format("first_pause ({}) is longer than longest_pause ({})", format_duration(endpoint.first_pause),
                         format_duration(endpoint.longest_pause)));
  if (!endpoint.ca_file.empty() && !endpoint.url.host.empty() && endpoint.url.scheme == UpstreamUrl::Scheme::http)
    add("ca", "is set but the messages are not delivered to https://: nothing would be verified; leave it out");
}

void Reader::check_webhook(const Webhook& webhook, const toml::table& table, unsigned line) {
  const auto add = [&](std::string_view setting, std::string_view text) {
    add_finding(line_in(table, setting, line), setting, text, {});
  };
  if (const auto provider = provider_without_secrets(webhook); !provider) {
    add("provider", provider.fault().message);
  } else if (const Status usable = check_secrets(**provider, webhook); !usable) {
    add("secrets", usable.fault().message);
  }
  if (!webhook.order_by.empty() && !webhook.order_by.starts_with('/'))
    add("order_by", "is a JSON pointer and begins with /, as in \"/data/object/id\"");
  check_endpoint(webhook.endpoint, table, line);
  if (!webhook.url.empty() && (!parse_target_url(webhook.url) || webhook.url.find('?') != std::string::npos))
    add("url", "is the URL the sender knows, without its query, as in \"https://example.com/hooks/sms\"");
  for (const char* const described : {"signature_header", "algorithm", "encoding", "signature_prefix", "signed",
                                      "timestamp_header", "id_header", "id_pointer"}) {
    if (webhook.provider != "hmac" && table.contains(described))
      add(described,
          fmt::format("is only for provider = \"hmac\"; Oncekey knows what {} signs: leave it out", webhook.provider));
  }
  if (webhook.max_body > config_.limits.max_buffered_bytes)
    add("max_body", "is more than limits.max_buffered_bytes: such a body would never fit");
  const std::string_view target = webhook.endpoint.target;
  if (webhook.endpoint.url.port == config_.listen.port && reaches(webhook.endpoint.url.host, config_.listen) &&
      target.substr(0, target.find('?')) == webhook.path)
    add("deliver_to", "is this webhook itself: every event would be taken for its own repetition");
  for (const Webhook& other : config_.webhooks) {
    if (glob_matches(other.path, webhook.path, config_.path_case))
      add("path", fmt::format("{} has a webhook already", webhook.path));
  }
}

void Reader::read_webhook(const toml::table& table, unsigned line) {
  const std::size_t findings = findings_.size();
  const std::size_t index = config_.webhooks.size();
  Webhook webhook;
  for (const char* needed : {"path", "provider", "secrets", "deliver_to"}) {
    if (!table.contains(needed)) add_finding(line, needed, "is missing in this [[webhook]]", {});
  }
  for (const auto& [key, value] : table) {
    const std::string_view name = key.str();
    const unsigned key_line = line_of(key.source());
    lines_[{std::nullopt, setting_in("webhook", index, name)}] = key_line;
    if (name == "deliver_to") {
      read_endpoint_url(name, value, key_line, webhook.endpoint);
    } else if (const auto* setting = find_setting(webhook_settings(), name)) {
      if (const Status read = setting->read(value, webhook); !read)
        add_finding(key_line, name, read.fault().message, {});
    } else if (!read_endpoint_setting(name, value, key_line, webhook.endpoint)) {
      std::vector<std::string_view> known{"deliver_to"};
      append_names(known, webhook_settings());
      append_names(known, endpoint_settings());
      add_finding(key_line, name, fmt::format("no such setting of a webhook{}", did_you_mean(name, known)), {});
    }
  }
  webhook.endpoint.name = "hook " + webhook.path;
  if (findings_.size() == findings) {
    check_webhook(webhook, table, line);
  } else if (!webhook.provider.empty() && webhook.provider != "hmac") {
    // The provider's name is checked even if other settings are missing, so that one run reports both.
    if (const auto provider = provider_without_secrets(webhook); !provider)
      add_finding(line_in(table, "provider", line), "provider", provider.fault().message, {});
  }
  config_.webhooks.push_back(std::move(webhook));
}

void Reader::read_destination(const toml::table& table, unsigned line) {
  const std::size_t index = config_.destinations.size();
  Endpoint endpoint;
  for (const char* needed : {"name", "url"}) {
    if (!table.contains(needed)) add_finding(line, needed, "is missing in this [[destination]]", {});
  }
  for (const auto& [key, value] : table) {
    const std::string_view name = key.str();
    const unsigned key_line = line_of(key.source());
    lines_[{std::nullopt, setting_in("destination", index, name)}] = key_line;
    if (name == "url") {
      read_endpoint_url(name, value, key_line, endpoint);
    } else if (name == "name") {
      if (const Status read = put(endpoint.name, as_text(value)); !read)
        add_finding(key_line, name, read.fault().message, {});
    } else if (!read_endpoint_setting(name, value, key_line, endpoint)) {
      std::vector<std::string_view> known{"name", "url"};
      append_names(known, endpoint_settings());
      add_finding(key_line, name, fmt::format("no such setting of a destination{}", did_you_mean(name, known)), {});
    }
  }
  endpoint.name = "to " + endpoint.name;
  check_endpoint(endpoint, table, line);
  for (const Endpoint& other : config_.destinations) {
    if (other.name == endpoint.name)
      add_finding(line_in(table, "name", line), "name", "another destination has this name", {});
  }
  config_.destinations.push_back(std::move(endpoint));
}

template <class Target>
void Reader::read_setting(const Setting<Target>& setting, std::string name, const toml::node& value, unsigned line,
                          RouteIndex route, Target& target) {
  if (const Status read = setting.read(value, target); !read) add_finding(line, name, read.fault().message, route);
  lines_[{route, std::move(name)}] = line;
}

// The route's own policy, else the file's, else the default. A name that is not known was reported where it stands.
Policy Reader::starting_policy(const toml::table* route_table) {
  const toml::node* named = route_table == nullptr ? nullptr : route_table->get("policy");
  if (named == nullptr) named = top_->get("policy");
  if (named != nullptr) {
    if (auto policy = as_policy(*named)) return std::move(policy).value();
  }
  auto policy = policy_by_name(kDefaultPolicy);
  ONCEKEY_CHECK(policy.has_value(), "the default policy exists");
  return *std::move(policy);
}

void Reader::apply_defaults(Policy& policy) {
  for (const Setting<Policy>& setting : policy_settings()) {
    if (!may_be_a_default(setting.name)) continue;
    // A value that cannot be read leaves the policy as it is; it was reported where it stands.
    if (const toml::node* value = top_->get(setting.name)) [[maybe_unused]]
      const Status read = setting.read(*value, policy);
  }
}

void Reader::unknown_at_the_top(std::string_view name, unsigned line) {
  if (find_setting(policy_settings(), name) != nullptr || name == "path") {
    add_finding(line, name, "belongs to a route: write it under [[route]]", std::nullopt);
    return;
  }
  std::vector<std::string_view> known{"policy", "route", "limits", "timeouts", "webhook", "destination"};
  append_names(known, gateway_settings());
  for (const Setting<Policy>& setting : policy_settings())
    if (may_be_a_default(setting.name)) known.push_back(setting.name);
  add_finding(line, name, fmt::format("no such setting{}", did_you_mean(name, known)), std::nullopt);
}

void Reader::unknown_in_a_route(std::string_view name, unsigned line, std::size_t route) {
  if (find_setting(gateway_settings(), name) != nullptr) {
    add_finding(line, name, "is a setting of the whole gateway: write it at the top, before the first [[route]]",
                route);
    return;
  }
  std::vector<std::string_view> known{"path", "policy", "upstream"};
  append_names(known, policy_settings());
  add_finding(line, name, fmt::format("no such setting of a route{}", did_you_mean(name, known)), route);
}

void Reader::add_finding(unsigned line, std::string_view setting, std::string_view text, RouteIndex route) {
  unread_.insert(route);
  findings_.push_back(
      {line, std::string(setting), fmt::format("{}: {}", line == 0 ? as_flag(setting) : std::string(setting), text)});
}

void Reader::add_problem(const Problem& problem) {
  if (unread_.contains(problem.route) || unread_.contains(std::nullopt)) return;
  add_finding_of(problem);
}

void Reader::add_finding_of(const Problem& problem) {
  const auto of_flag = [&](const std::string& setting) {
    const bool own_text = file_name_.empty() && !problem.text_for_flags.empty();
    findings_.push_back(
        {0, setting, fmt::format("{}: {}", as_flag(setting), own_text ? problem.text_for_flags : problem.text)});
  };
  // The route's own line for any of the settings, else the default at the top, else the route itself.
  for (const RouteIndex& place : {problem.route, RouteIndex{}}) {
    for (const std::string& setting : problem.settings) {
      const auto found = lines_.find({place, setting});
      if (found == lines_.end()) continue;
      if (found->second == 0) return of_flag(setting);
      findings_.push_back({found->second, setting, problem.text});
      return;
    }
  }
  if (file_name_.empty()) return of_flag(problem.settings.front());
  const unsigned line = problem.route ? route_lines_[*problem.route] : 1;
  findings_.push_back({std::max(line, 1u), problem.settings.front(), problem.text});
}

ReadConfig Reader::finish() {
  std::stable_sort(findings_.begin(), findings_.end(),
                   [](const Finding& a, const Finding& b) { return a.line < b.line; });
  std::map<std::string, unsigned> lines;
  for (const auto& [where, line] : lines_) {
    if (!where.first && line != 0) lines[where.second] = line;
  }
  return {file_name_, std::move(config_), std::move(findings_), written_in(*top_), std::move(lines)};
}

} // namespace oncekey
