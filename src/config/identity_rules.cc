#include "config/identity_rules.h"

#include "config/routes.h"
#include "core/policy_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

namespace oncekey {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lower;
}

// Sources are lists of texts without spaces.
template <class Source>
std::string listed(const std::vector<Source>& sources) {
  std::vector<std::string> texts;
  for (const Source& source : sources) {
    // Header names compare without case.
    texts.push_back(source.kind == Source::Kind::header ? lower_case(to_string(source)) : to_string(source));
  }
  return fmt::format("{}", fmt::join(texts, ","));
}

std::string identity_of(const Policy& policy) {
  if (policy.mode == Mode::observe) return {};
  std::string text = fmt::format("scope={} identity={} key_from={} key_syntax={} ignore_host={} path_case={}",
                                 listed(policy.scope), to_string(policy.identity), listed(policy.key_from),
                                 to_string(policy.key_syntax), policy.ignore_host, to_string(policy.path_case));
  const bool has_tokens = std::any_of(policy.scope.begin(), policy.scope.end(),
                                      [](const ScopeSource& source) { return source.kind == ScopeSource::Kind::jwt; });
  if (has_tokens) text += fmt::format(" jwt_unverified={}", policy.tokens.unverified);
  text += fmt::format(" accounts={}", policy.accounts.empty() ? "none" : "mapped");
  const bool keyed_by_fingerprint =
      std::any_of(policy.key_from.begin(), policy.key_from.end(),
                  [](const KeySource& source) { return source.kind == KeySource::Kind::fingerprint; });
  if (keyed_by_fingerprint) {
    text += fmt::format(" fingerprint={} fingerprint_ignore={} fingerprint_headers={}", to_string(policy.fingerprint),
                        fmt::join(policy.fingerprint_ignore, ","),
                        lower_case(fmt::format("{}", fmt::join(policy.fingerprint_headers, ","))));
  }
  // It is one line of what the store remembers.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, '?');
  return text;
}

bool has_method(const IdentityRule& rule, std::string_view method) {
  return std::find(rule.methods.begin(), rule.methods.end(), method) != rule.methods.end();
}

Route as_route(const IdentityRule& rule, const std::string& method) {
  Route route;
  route.path = rule.path;
  route.policy.methods = {method};
  route.policy.path_case = rule.path_case;
  return route;
}

bool covers(const IdentityRule& wide, const IdentityRule& narrow, const std::string& method) {
  return has_method(wide, method) && shadows(as_route(wide, method), as_route(narrow, method));
}

// Whether some path matches both globs.
bool meet(std::string_view a, std::string_view b) {
  // reached[j]: the globs can agree so far with `at` bytes of a and j bytes of b behind them.
  std::vector<bool> reached(b.size() + 1, false);
  reached[0] = true;
  for (std::size_t at = 0;; ++at) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      // A star of b may stand for nothing; a star of a may take any byte of b.
      if (reached[j] && (b[j] == '*' || (at < a.size() && a[at] == '*'))) reached[j + 1] = true;
    }
    if (at == a.size()) return reached[b.size()];
    std::vector<bool> next(b.size() + 1, false);
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (!reached[j]) continue;
      if (a[at] == '*') {
        next[j] = true;
      } else if (j < b.size() && b[j] == '*') {
        next[j] = true;
      } else if (j < b.size() && a[at] == b[j]) {
        next[j + 1] = true;
      }
    }
    reached = std::move(next);
  }
}

// A glob and, where it ends in "/*", its folder.
std::vector<std::string> spellings(const IdentityRule& rule, bool ignoring_case) {
  std::vector<std::string> globs{rule.path};
  if (rule.path.ends_with("/*")) globs.push_back(rule.path.substr(0, rule.path.size() - 2));
  if (ignoring_case) {
    for (std::string& glob : globs) glob = lower_case(glob);
  }
  return globs;
}

bool may_meet(const IdentityRule& a, const IdentityRule& b) {
  const bool ignoring_case = a.path_case == PathCase::ignore || b.path_case == PathCase::ignore;
  for (const std::string& one : spellings(a, ignoring_case)) {
    for (const std::string& other : spellings(b, ignoring_case)) {
      if (meet(one, other)) return true;
    }
  }
  return false;
}

std::map<std::string, std::string> parts_of(std::string_view identity) {
  std::map<std::string, std::string> parts;
  while (!identity.empty()) {
    const std::size_t end = std::min(identity.find(' '), identity.size());
    const std::string_view part = identity.substr(0, end);
    const std::size_t equals = std::min(part.find('='), part.size());
    parts[std::string(part.substr(0, equals))] = part.substr(std::min(equals + 1, part.size()));
    identity.remove_prefix(std::min(end + 1, identity.size()));
  }
  return parts;
}

// "scope was header:authorization and is jwt:sub"
std::string difference(std::string_view before, std::string_view after) {
  if (after.empty()) return "mode is \"observe\" now, which keeps nothing";
  const auto old_parts = parts_of(before);
  const auto new_parts = parts_of(after);
  std::vector<std::string> changes;
  for (const auto& [name, value] : old_parts) {
    const auto found = new_parts.find(name);
    if (found == new_parts.end()) continue; // goes with another change
    if (found->second != value) changes.push_back(fmt::format("{} was {} and is {}", name, value, found->second));
  }
  return changes.empty() ? "its identity has changed" : fmt::format("{}", fmt::join(changes, ", "));
}

// Why requests of `rule` with this method would not find their records; nothing if they do.
std::optional<std::string> why_lost(const IdentityRules& before, std::size_t index, const IdentityRules& after,
                                    const std::string& method) {
  const IdentityRule& rule = before[index];
  // The requests of a rule are those that no earlier one has taken.
  const auto was_taken_before = [&](const IdentityRule& other) {
    return std::any_of(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(index),
                       [&](const IdentityRule& earlier) { return covers(earlier, other, method); });
  };
  for (const IdentityRule& now : after) {
    if (!has_method(now, method)) continue;
    const bool takes_all = covers(now, rule, method);
    if (now.identity != rule.identity && may_meet(now, rule) && !was_taken_before(now)) {
      if (now.path == rule.path) return difference(rule.identity, now.identity);
      return fmt::format("route {} takes requests of it, and there {}", now.path,
                         difference(rule.identity, now.identity));
    }
    if (takes_all) return std::nullopt;
  }
  return "no route has all of its requests any more";
}

} // namespace

IdentityRules identity_rules_of(const Config& config) {
  IdentityRules rules;
  for (const Route& route : config.routes) {
    const Policy& policy = route.policy;
    std::vector<std::string> methods = policy.methods;
    std::sort(methods.begin(), methods.end());
    rules.push_back({route.path, std::move(methods), policy.path_case, identity_of(policy)});
  }
  return rules;
}

std::vector<std::string> lost_identities(const IdentityRules& before, const IdentityRules& after) {
  std::vector<std::string> lost;
  for (std::size_t index = 0; index < before.size(); ++index) {
    if (before[index].identity.empty()) continue;
    std::map<std::string, std::vector<std::string>> methods_by_reason;
    for (const std::string& method : before[index].methods) {
      if (const auto why = why_lost(before, index, after, method)) methods_by_reason[*why].push_back(method);
    }
    for (const auto& [reason, methods] : methods_by_reason)
      lost.push_back(fmt::format("route {} ({}): {}", before[index].path, fmt::join(methods, ","), reason));
  }
  return lost;
}

std::string encode(const IdentityRules& rules) {
  std::string text;
  for (const IdentityRule& rule : rules) {
    text += fmt::format("{}\t{}\t{}\t{}\n", rule.path, fmt::join(rule.methods, ","), to_string(rule.path_case),
                        rule.identity);
  }
  return text;
}

Result<IdentityRules> decode_identity_rules(std::string_view text) {
  IdentityRules rules;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return corrupt("the remembered identity rules are cut short");
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    std::vector<std::string> fields;
    for (int i = 0; i < 3; ++i) {
      const std::size_t tab = line.find('\t');
      if (tab == std::string_view::npos) return corrupt("a line of the remembered identity rules has too few fields");
      fields.emplace_back(line.substr(0, tab));
      line.remove_prefix(tab + 1);
    }
    IdentityRule rule;
    rule.path = fields[0];
    for (std::string_view rest = fields[1]; !rest.empty();) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      rule.methods.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    const auto path_case = parse_path_case(fields[2]);
    if (!path_case) return corrupt("a line of the remembered identity rules has an unknown path_case");
    rule.path_case = *path_case;
    rule.identity = line;
    rules.push_back(std::move(rule));
  }
  return rules;
}

} // namespace oncekey
