#include "config/identity_rules.h"

#include "base/ascii.h"
#include "base/crypto.h"
#include "config/identity_files.h"
#include "core/policy_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

namespace oncekey {
namespace {

// Begins a line about an accounts file. The path of a route begins with / or *.
constexpr std::string_view kAccounts = "accounts\t";

// The text without the characters that separate texts in a line, and never empty: joined texts can be split again.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || c == ',' || c == '%' || c == '\x7f' || (c >= 0 && c < ' ')) {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out.empty() ? "%" : out;
}

// The reverse of escaped(); nothing for a text that escaped() cannot have made.
std::optional<std::string> unescaped(std::string_view text) {
  if (text == "%") return std::string();
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = text[at] == '%' ? hex_decode(text.substr(at + 1, 2)) : std::string(1, text[at]);
    if (!byte || byte->empty()) return std::nullopt;
    out += *byte;
    if (text[at] == '%') at += 2;
  }
  return out;
}

std::string listed(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts) all.push_back(escaped(text));
  return fmt::format("{}", fmt::join(all, ","));
}

template <class Source>
std::string listed_sources(const std::vector<Source>& sources) {
  std::vector<std::string> texts;
  for (const Source& source : sources) {
    // Header names compare without case.
    texts.push_back(source.kind == Source::Kind::header ? lower_case(to_string(source)) : to_string(source));
  }
  return listed(texts);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string identity_of(const Policy& policy) {
  if (policy.mode == Mode::observe) return {};
  std::string text =
      fmt::format("scope={} identity={} key_from={} key_syntax={} ignore_host={} path_case={}",
                  listed_sources(policy.scope), to_string(policy.identity), listed_sources(policy.key_from),
                  to_string(policy.key_syntax), policy.ignore_host, to_string(policy.path_case));
  if (has_scope(policy, ScopeSource::Kind::jwt)) text += fmt::format(" jwt_unverified={}", policy.tokens.unverified);
  text += fmt::format(" accounts={}", policy.accounts.empty() ? "none" : escaped("file:" + policy.accounts));
  if (uses_fingerprint_as_key(policy)) {
    std::vector<std::string> headers;
    for (const std::string& name : policy.fingerprint_headers) headers.push_back(lower_case(name));
    text += fmt::format(" fingerprint={} fingerprint_ignore={} fingerprint_headers={}", to_string(policy.fingerprint),
                        listed(policy.fingerprint_ignore), listed(headers));
  }
  return text;
}

bool has_method(const IdentityRule& rule, std::string_view method) {
  return std::find(rule.methods.begin(), rule.methods.end(), method) != rule.methods.end();
}

bool covers(const IdentityRule& wide, const IdentityRule& narrow, const std::string& method) {
  return has_method(wide, method) && glob_covers(wide.path, wide.path_case, narrow.path, narrow.path_case);
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
      if (a[at] == '*' || (j < b.size() && b[j] == '*')) {
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
  for (const std::string_view part : split(identity, ' ')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    parts[std::string(part.substr(0, equals))] = part.substr(std::min(equals + 1, part.size()));
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
    if (found == new_parts.end()) continue; // part of another difference
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

Result<IdentityBasis> identity_basis_of(const Config& config) {
  IdentityBasis basis;
  basis.rules = identity_rules_of(config);
  for (const Route& route : config.routes) {
    const std::string& path = route.policy.accounts;
    if (path.empty() || route.policy.mode == Mode::observe || basis.accounts.contains(path)) continue;
    const auto accounts = load_accounts(path);
    if (!accounts) return invalid("accounts: {}", accounts.fault().message);
    basis.accounts[path] = accounts->digests();
  }
  return basis;
}

std::vector<std::string> lost_identities(const IdentityBasis& before, const IdentityBasis& after) {
  std::vector<std::string> lost = lost_identities(before.rules, after.rules);
  // A route without its accounts file, or with another one, was reported above.
  for (const auto& [path, missing] : added_accounts(after.accounts, before.accounts))
    lost.push_back(fmt::format("accounts {}: {} credential{} missing or with another account than before", path,
                               missing, missing == 1 ? "" : "s"));
  return lost;
}

std::map<std::string, std::size_t> added_accounts(const AccountEntries& before, const AccountEntries& after) {
  std::map<std::string, std::size_t> added;
  for (const auto& [path, entries] : after) {
    const auto found = before.find(path);
    if (found == before.end()) continue;
    std::vector<std::string> more; // both are sorted
    std::set_difference(entries.begin(), entries.end(), found->second.begin(), found->second.end(),
                        std::back_inserter(more));
    if (!more.empty()) added[path] = more.size();
  }
  return added;
}

std::string encode(const IdentityBasis& basis) {
  std::string text;
  for (const IdentityRule& rule : basis.rules) {
    text += fmt::format("{}\t{}\t{}\t{}\n", escaped(rule.path), listed(rule.methods), to_string(rule.path_case),
                        rule.identity);
  }
  for (const auto& [path, entries] : basis.accounts)
    text += fmt::format("{}{}\t{}\n", kAccounts, escaped(path), fmt::join(entries, ","));
  return text;
}

Result<IdentityBasis> decode_identity_basis(std::string_view text) {
  IdentityBasis basis;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return corrupt("the remembered identity rules are cut short");
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const bool of_accounts = line.starts_with(kAccounts);
    if (of_accounts) line.remove_prefix(kAccounts.size());
    std::vector<std::string_view> fields;
    for (int i = 0; i < (of_accounts ? 1 : 3); ++i) {
      const std::size_t tab = line.find('\t');
      if (tab == std::string_view::npos) return corrupt("a line of the remembered identity rules has too few fields");
      fields.push_back(line.substr(0, tab));
      line.remove_prefix(tab + 1);
    }
    const std::optional<std::string> path = unescaped(fields[0]);
    if (!path) return corrupt("a line of the remembered identity rules has a damaged path");
    if (of_accounts) {
      std::vector<std::string>& entries = basis.accounts[*path];
      for (const std::string_view entry : split(line, ',')) entries.emplace_back(entry);
      continue;
    }
    IdentityRule rule{*path, {}, {}, std::string(line)};
    for (const std::string_view item : split(fields[1], ',')) {
      const std::optional<std::string> method = unescaped(item);
      if (!method) return corrupt("a line of the remembered identity rules has a damaged method");
      rule.methods.push_back(*method);
    }
    const auto path_case = parse_word<PathCase>(fields[2]);
    if (!path_case) return corrupt("a line of the remembered identity rules has an unknown path_case");
    rule.path_case = *path_case;
    basis.rules.push_back(std::move(rule));
  }
  return basis;
}

} // namespace oncekey
