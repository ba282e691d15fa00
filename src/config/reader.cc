// From TOML to a Config: every table of the file, and what its settings say together.
#include "base/durations.h"
#include "config/problems.h"
#include "config/settings.h"
#include "config/suggestion.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace oncekey {
namespace {

constexpr std::string_view kDefaultPolicy = "classic";
constexpr std::string_view kEverything = "/*";
constexpr const char* kItself = ""; // a route, in the place of one of its settings

unsigned line_of(const toml::source_region& source) { return source.begin.line; }

// The line of a setting that stands in the table, else the table's own.
unsigned line_in(const toml::table& table, std::string_view setting, unsigned line) {
  const auto found = table.find(setting);
  return found == table.end() ? line : line_of(found->first.source());
}

std::string text_of(const Node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  return text.str();
}

// The tables of a list are told apart by what names them, so that a new one in front does not change the others.
void add_list(WrittenSettings& written, std::string_view list, const toml::array& tables, std::string_view named_by) {
  std::string order;
  for (const Node& node : tables) {
    const toml::table* const table = node.as_table();
    if (table == nullptr) continue;
    const Node* const name = table->get(named_by);
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

// What stands at the top beside settings, and is read by itself.
Status read_later(const Node&, Config&) { return ok_status(); }
constexpr Setting<Config> kTables[] = {{"route", read_later},
                                       {"limits", read_later},
                                       {"timeouts", read_later},
                                       {"webhook", read_later},
                                       {"destination", read_later}};

// Where a setting that is unknown in its place belongs: "belongs under [timeouts]". Empty if nothing has that name.
std::string where_it_belongs(std::string_view name) {
  std::vector<std::string_view> places;
  const auto look = [&](const auto& settings, std::string_view place) {
    if (find_setting(settings, name) == nullptr) return;
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  };
  look(limit_settings(), "under [limits]");
  look(timeout_settings(), "under [timeouts]");
  look(route_settings(), "under [[route]]");
  look(default_settings(), "under [[route]]");
  look(policy_settings(), "under [[route]]");
  look(webhook_settings(), "under [[webhook]]");
  look(endpoint_settings(), "under [[webhook]]");
  look(destination_settings(), "under [[destination]]");
  look(endpoint_settings(), "under [[destination]]");
  constexpr std::string_view kAtTheTop = "at the top, before the first section";
  look(gateway_settings(), kAtTheTop);
  look(default_settings(), kAtTheTop);
  return places.empty() ? "" : fmt::format("belongs {}", fmt::join(places, " or "));
}

// Settings that may stand in one table of the file, and what they are read into.
template <class Target>
struct Part {
  Settings<Target> settings;
  Target& target;
};
template <class Target>
Part(Settings<Target>, Target&) -> Part<Target>;

using RouteIndex = std::optional<std::size_t>;

// Reads one file and is then spent.
class Reader {
 public:
  Reader(const toml::table& file, std::string_view file_name) : file_(file), file_name_(file_name) {}

  ReadConfig read(NamedFiles files) {
    Policy defaults;
    const auto elsewhere = [](std::string_view name) -> std::string_view {
      const bool of_a_route = find_setting(policy_settings(), name) || find_setting(route_settings(), name);
      return of_a_route ? "belongs to a route: write it under [[route]]" : "";
    };
    read_table(file_, {.elsewhere = elsewhere}, Part(Settings<Config>(kTables), config_),
               Part(gateway_settings(), config_), Part(default_settings(), defaults));
    // Requests that match no route are forwarded too, and webhooks have paths too.
    config_.upstream_timeout = defaults.upstream_timeout;
    config_.path_case = defaults.path_case;
    read_section("limits", Part(limit_settings(), config_.limits));
    read_section("timeouts", Part(timeout_settings(), config_.timeouts));
    read_list("route", &Reader::read_route);
    if (!file_.contains("route")) read_route({}, 0);
    read_list("webhook", &Reader::read_webhook);
    read_list("destination", &Reader::read_destination);
    for (const Problem& problem : problems_of(config_)) {
      // A setting that it may depend on could not be read.
      if (unread_.contains(problem.route) || unread_.contains(std::nullopt)) continue;
      add_finding_of(problem);
    }
    if (files == NamedFiles::looked_at) {
      // Reported even if other settings are wrong: each is about one file.
      for (const Problem& problem : problems_of_files(config_)) add_finding_of(problem);
    }
    return finish();
  }

 private:
  // A table of the file.
  struct Place {
    RouteIndex route{};
    std::string section{};   // "limits.": in front of its settings wherever they are named
    std::string list{};      // "webhook[0].": the same for lines_ alone
    std::string_view what{}; // " of a route"
    // Where a setting that is unknown here belongs, in words of this table; empty for what where_it_belongs() says.
    std::string_view (*elsewhere)(std::string_view name) = [](std::string_view) { return std::string_view(); };
  };

  // Reads all settings of a table, each by the first part that knows it.
  template <class... Targets>
  void read_table(const toml::table& table, const Place& place, Part<Targets>... parts) {
    for (const auto& [key, value] : table) {
      const std::string name = place.section + std::string(key.str());
      const unsigned line = line_of(key.source());
      lines_[{place.route, place.list + name}] = line;
      const auto reads = [&](const auto& part) {
        const auto* const setting = find_setting(part.settings, key.str());
        if (setting == nullptr) return false;
        if (const Status read = setting->read(value, part.target); !read)
          add_finding(line, name, read.fault().message, place.route);
        return true;
      };
      if ((reads(parts) || ...)) continue;
      std::string text(place.elsewhere(key.str()));
      if (text.empty()) text = where_it_belongs(key.str());
      if (text.empty()) {
        std::vector<std::string_view> known;
        const auto add_names = [&](const auto& settings) {
          for (const auto& setting : settings) known.push_back(setting.name);
        };
        (add_names(parts.settings), ...);
        text = fmt::format("no such setting{}{}", place.what, did_you_mean(key.str(), known));
      }
      add_finding(line, name, text, place.route);
    }
  }

  template <class Target>
  void read_section(const std::string& name, Part<Target> part) {
    const Node* const node = file_.get(name);
    if (node == nullptr) return;
    if (const toml::table* const section = node->as_table()) return read_table(*section, {.section = name + "."}, part);
    add_finding(line_of(node->source()), name, fmt::format("is a section: write [{}] on a line of its own", name));
  }

  // Every table of [[name]], each with its line.
  void read_list(const std::string& name, void (Reader::*read_one)(const toml::table& table, unsigned line)) {
    const Node* const node = file_.get(name);
    if (node == nullptr) return;
    const toml::array* const list = node->as_array();
    if (list == nullptr || !list->is_homogeneous<toml::table>()) {
      add_finding(line_of(node->source()), name,
                  fmt::format("write [[{}]], with two brackets: there can be several", name));
      return;
    }
    if (!list->empty()) lines_[{std::nullopt, name}] = line_of(list->front().source());
    for (const Node& item : *list) (this->*read_one)(*item.as_table(), line_of(item.source()));
  }

  // Without a [[route]] in the file there is one for everything, and the line is 0.
  void read_route(const toml::table& table, unsigned line) {
    const std::size_t index = config_.routes.size();
    lines_[{index, kItself}] = line;
    Route route;
    route.path = kEverything;
    route.policy = starting_policy(table);
    for (const Setting<Policy>& setting : default_settings()) {
      // A value that cannot be read leaves the policy as it is; it was reported where it stands.
      if (const Node* value = file_.get(setting.name)) [[maybe_unused]]
        const Status read = setting.read(*value, route.policy);
    }
    if (line != 0 && !table.contains("path"))
      add_finding(line, "path", "is missing: say which requests the route is for", index);
    const auto elsewhere = [](std::string_view name) -> std::string_view {
      if (find_setting(gateway_settings(), name) == nullptr) return "";
      return "is a setting of the whole gateway: write it at the top, before the first [[route]]";
    };
    read_table(table, {.route = index, .what = " of a route", .elsewhere = elsewhere}, Part(route_settings(), route),
               Part(default_settings(), route.policy), Part(policy_settings(), route.policy));
    const auto same_path = std::count_if(config_.routes.begin(), config_.routes.end(),
                                         [&](const Route& other) { return other.path == route.path; });
    route.name = same_path == 0 ? route.path : fmt::format("{}#{}", route.path, same_path + 1);
    config_.routes.push_back(std::move(route));
  }

  // The route's own policy, else the file's, else the default. A name that is not known was reported where it stands.
  Policy starting_policy(const toml::table& route) {
    const Node* const named = route.contains("policy") ? route.get("policy") : file_.get("policy");
    if (named != nullptr) {
      if (auto policy = as_policy(*named)) return std::move(policy).value();
    }
    auto policy = policy_by_name(kDefaultPolicy);
    ONCEKEY_CHECK(policy.has_value(), "the default policy exists");
    return *std::move(policy);
  }

  void need(const toml::table& table, unsigned line, std::string_view list,
            std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (!table.contains(name)) add_finding(line, name, fmt::format("is missing in this [[{}]]", list));
    }
  }

  void check_endpoint(const Endpoint& endpoint, const toml::table& table, unsigned line) {
    const auto add_pair = [&](std::string_view setting, std::string_view other, std::string text) {
      const std::string_view written = table.contains(setting) ? setting : other;
      unread_.insert(std::nullopt);
      findings_.push_back({line_in(table, written, line), std::string(written), std::move(text)});
    };
    if (endpoint.budget >= endpoint.remember)
      add_pair("budget", "remember",
               fmt::format("budget ({}) is not shorter than remember ({}): a message would be forgotten while it is "
                           "still being delivered; make remember longer",
                           format_duration(endpoint.budget), format_duration(endpoint.remember)));
    if (endpoint.first_pause > endpoint.longest_pause)
      add_pair("first_pause", "longest_pause",
               fmt::format("first_pause ({}) is longer than longest_pause ({})", format_duration(endpoint.first_pause),
                           format_duration(endpoint.longest_pause)));
    if (!endpoint.ca_file.empty() && !endpoint.url.host.empty() && !endpoint.url.tls)
      add_finding(line_in(table, "ca", line), "ca",
                  "is set but the messages are not delivered to https://: nothing would be verified; leave it out");
  }

  void check_webhook(const Webhook& webhook, const toml::table& table, unsigned line) {
    const auto add = [&](std::string_view setting, std::string_view text) {
      add_finding(line_in(table, setting, line), setting, text);
    };
    if (const auto provider = provider_without_secrets(webhook); !provider) {
      add("provider", provider.fault().message);
    } else if (const Status usable = check_secrets(**provider, webhook); !usable) {
      add("secrets", usable.fault().message);
    }
    if (!webhook.order_by.empty() && !webhook.order_by.starts_with('/'))
      add("order_by", "is a JSON pointer and begins with /, as in \"/data/object/id\"");
    check_endpoint(webhook.endpoint, table, line);
    if (!webhook.url.empty() && (!parse_url(webhook.url) || webhook.url.find('?') != std::string::npos))
      add("url", "is the URL the sender knows, without its query, as in \"https://example.com/hooks/sms\"");
    for (const char* const described : {"signature_header", "algorithm", "encoding", "signature_prefix", "signed",
                                        "timestamp_header", "id_header", "id_pointer"}) {
      if (webhook.provider != "hmac" && table.contains(described))
        add(described, fmt::format("is only for provider = \"hmac\"; Oncekey knows what {} signs: leave it out",
                                   webhook.provider));
    }
    if (webhook.max_body > config_.limits.max_buffered_bytes)
      add("max_body", "is more than limits.max_buffered_bytes: such a body would never fit");
    const std::string_view target = webhook.endpoint.url.target;
    if (webhook.endpoint.url.port == config_.listen.port && reaches(webhook.endpoint.url.host, config_.listen) &&
        target.substr(0, target.find('?')) == webhook.path)
      add("deliver_to", "is this webhook itself: every event would be taken for its own repetition");
    for (const Webhook& other : config_.webhooks) {
      if (glob_matches(other.path, webhook.path, config_.path_case))
        add("path", fmt::format("{} has a webhook already", webhook.path));
    }
  }

  void read_webhook(const toml::table& table, unsigned line) {
    const std::size_t findings = findings_.size();
    Webhook webhook;
    need(table, line, "webhook", {"path", "provider", "secrets", "deliver_to"});
    read_table(table, {.list = setting_in("webhook", config_.webhooks.size(), ""), .what = " of a webhook"},
               Part(webhook_settings(), webhook), Part(endpoint_settings(), webhook.endpoint));
    webhook.endpoint.name = "hook " + webhook.path;
    if (findings_.size() == findings) {
      check_webhook(webhook, table, line);
    } else if (!webhook.provider.empty() && webhook.provider != "hmac") {
      // The provider's name is checked even if other settings are missing, so that one run reports both.
      if (const auto provider = provider_without_secrets(webhook); !provider)
        add_finding(line_in(table, "provider", line), "provider", provider.fault().message);
    }
    config_.webhooks.push_back(std::move(webhook));
  }

  void read_destination(const toml::table& table, unsigned line) {
    Endpoint endpoint;
    need(table, line, "destination", {"name", "url"});
    read_table(table, {.list = setting_in("destination", config_.destinations.size(), ""), .what = " of a destination"},
               Part(destination_settings(), endpoint), Part(endpoint_settings(), endpoint));
    endpoint.name = "to " + endpoint.name;
    check_endpoint(endpoint, table, line);
    for (const Endpoint& other : config_.destinations) {
      if (other.name == endpoint.name)
        add_finding(line_in(table, "name", line), "name", "another destination has this name");
    }
    config_.destinations.push_back(std::move(endpoint));
  }

  void add_finding(unsigned line, std::string_view setting, std::string_view text, RouteIndex route = {}) {
    unread_.insert(route);
    findings_.push_back(
        {line, std::string(setting), fmt::format("{}: {}", line == 0 ? as_flag(setting) : std::string(setting), text)});
  }

  void add_finding_of(const Problem& problem) {
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
    const unsigned line = problem.route ? lines_[{problem.route, kItself}] : 1;
    findings_.push_back({std::max(line, 1u), problem.settings.front(), problem.text});
  }

  ReadConfig finish() {
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.line < b.line; });
    std::map<std::string, unsigned> lines;
    for (const auto& [where, line] : lines_) {
      if (!where.first && line != 0) lines[where.second] = line;
    }
    return {file_name_, std::move(config_), std::move(findings_), written_in(file_), std::move(lines)};
  }

  const toml::table& file_;
  std::string file_name_;
  Config config_;
  std::vector<Finding> findings_;
  // Where each setting stood, and each route (kItself). Those of webhooks and destinations are named by setting_in().
  std::map<std::pair<RouteIndex, std::string>, unsigned> lines_;
  // Routes (nothing: the top) with a setting that could not be read. Their combinations are not checked: the settings
  // are not what was meant.
  std::set<RouteIndex> unread_;
};

} // namespace

std::string as_flag(std::string_view setting) {
  std::string flag = fmt::format("--{}", setting);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

ReadConfig read_settings(const toml::table& file, std::string_view file_name, NamedFiles files) {
  return Reader(file, file_name).read(files);
}

} // namespace oncekey
