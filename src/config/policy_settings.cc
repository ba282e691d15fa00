// The settings of a route: every field of Policy under its own name. How values are spelled is defined in
// core/policy_text.h.
#include "base/ascii.h"
#include "base/masked_url.h"
#include "config/settings.h"
#include "config/suggestion.h"
#include "core/policy_text.h"
#include "core/rate_keeper.h"

#include <algorithm>

namespace oncekey {
namespace {

template <class Enum>
Status put_word(Enum& target, const Node& node) {
  return put(target, parsed(node, parse_word<Enum>));
}

Result<std::string> parse_method(std::string_view text) {
  if (!is_token(text) || std::any_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
    return invalid("\"{}\" is not a method: methods are written in capitals, as in \"POST\"", text);
  if (text == "CONNECT" || text == "TRACE")
    return invalid("{} cannot be protected: it has no answer that could be kept", text);
  return std::string(text);
}

Result<std::string> parse_header_name(std::string_view text) {
  if (!is_token(text)) return invalid("\"{}\" is not the name of a header", text);
  return std::string(text);
}

Result<std::string> parse_pointer(std::string_view text) {
  if (const Status good = check_json_pointer(text); !good) return good.fault();
  return std::string(text);
}

Result<StatusSet> parse_statuses(std::string_view text) {
  if (const auto set = StatusSet::parse(text)) return *set;
  return invalid(
      "\"{}\" is not a set of statuses: write statuses and ranges from 100 to 599, with ! for those to leave out, as "
      "in \"200-499,!429\"",
      text);
}

constexpr std::string_view kFile = "file:";

bool names_a_file(std::string_view text) { return text.starts_with(kFile) && text.size() > kFile.size(); }

Result<std::string> parse_jwt_keys(std::string_view text) {
  if (names_a_file(text) || parse_url(text)) return std::string(text);
  return invalid(
      "\"{}\" names no keys: write \"file:PATH\" of a JSON Web Key Set, or its URL, as in "
      "\"https://id.example.com/.well-known/jwks.json\"",
      masked_url(text));
}

Result<std::string> parse_file(std::string_view text) {
  if (names_a_file(text)) return std::string(text.substr(kFile.size()));
  return invalid("\"{}\" names no file: write \"file:PATH\"", text);
}

struct Brackets {
  std::string_view opening;
  std::string_view closing;
};
// The last two as URLs spell the first two.
constexpr Brackets kBrackets[] = {{"{", "}"}, {"<", ">"}, {"[", "]"}, {"(", ")"}, {"%7B", "%7D"}, {"%3C", "%3E"}};

// Behind the bracket that closes the one at `at`; the end of the path if there is none.
std::size_t behind_brackets(std::string_view path, std::size_t at, const Brackets& brackets) {
  int depth = 0;
  while (at < path.size()) {
    const auto is = [&](std::string_view bracket) {
      return equal_ignoring_case(path.substr(at, bracket.size()), bracket);
    };
    if (is(brackets.opening)) ++depth;
    const bool closes = is(brackets.closing);
    at += closes ? brackets.closing.size() : 1;
    if (closes && --depth == 0) return at;
  }
  return path.size();
}

// The end of what varies from `at` on, as web frameworks write it: {id}, <id>, [id], (a|b), :id and $id. `at` if
// nothing does. Parentheses behind a name, as in /Products(1), are a part of the path.
std::size_t end_of_varying(std::string_view path, std::size_t at) {
  const bool begins_segment = at > 0 && path[at - 1] == '/';
  const char c = path[at];
  if (begins_segment && (c == ':' || c == '$') && at + 1 < path.size() && path[at + 1] != '/')
    return std::min(path.find('/', at), path.size());
  for (const Brackets& brackets : kBrackets) {
    if (!equal_ignoring_case(path.substr(at, brackets.opening.size()), brackets.opening)) continue;
    const std::size_t end = behind_brackets(path, at, brackets);
    if (c == '(' && !begins_segment && path.substr(at, end - at).find_first_of("|*+?") == std::string_view::npos)
      continue;
    return end;
  }
  return at;
}

// With * in the place of what varies. Nothing if there is none.
std::optional<std::string> with_stars(std::string_view path) {
  std::string stars;
  bool found = false;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t end = end_of_varying(path, at);
    if (end == at) {
      stars += path[at++];
      continue;
    }
    found = true;
    if (!stars.ends_with('*')) stars += '*';
    at = end;
  }
  if (!found) return std::nullopt;
  return stars;
}

Result<std::string> parse_route_path(std::string_view path) {
  if (const auto stars = with_stars(path))
    return invalid("\"{}\" would be taken literally and protect nothing: write * for a part that varies, as in \"{}\"",
                   path, *stars);
  if (path.front() != '/' && path.front() != '*')
    return invalid("\"{}\" matches nothing: a path begins with / (or with *)", path);
  for (const char c : path) {
    if (c == '?' || c == '#') return invalid("a path is compared without the query: leave out ? and #");
    if (c == ' ' || c == '\x7f' || (c > 0 && c < ' '))
      return invalid("a path holds no spaces or control characters; write them as %20");
  }
  std::string normal = normal_glob(path);
  if (normal.empty())
    return invalid(
        "\"{}\" is not in normal form: leave out dot segments, backslashes, `;parameters`, encoded slashes and "
        "semicolons, and % without two digits; requests are compared without them",
        path);
  // Two stars match what one matches, and "/v1/**" is to have /v1 as "/v1/*" has.
  const auto both_stars = [](char a, char b) { return a == '*' && b == '*'; };
  normal.erase(std::unique(normal.begin(), normal.end(), both_stars), normal.end());
  return normal;
}

// A refusal of the gateway must be a client error: clients would take any other status for an answer of the API.
Status put_refusal_status(int& target, const Node& node) { return put_count(target, node, 400, 499); }

constexpr Setting<Route> kRouteSettings[] = {
    {"path", [](auto& v, auto& r) { return put(r.path, parsed(v, parse_route_path)); }},
    {"policy", check_policy<Route>},
    {"upstream", [](auto& v, auto& r) { return put(r.upstream, parsed(v, parse_upstream)); }},
};

// Settings that are usually the same for all routes of one company.
constexpr Setting<Policy> kDefaultSettings[] = {
    {"ignore_host", [](auto& v, auto& p) { return put(p.ignore_host, as_switch(v)); }},
    {"path_case", [](auto& v, auto& p) { return put_word(p.path_case, v); }},
    {"retention", [](auto& v, auto& p) { return put(p.retention, as_duration(v, Millis(1))); }},
    {"scope", [](auto& v, auto& p) { return put(p.scope, as_list(v, parse_scope_source)); }},
    {"jwt_keys", [](auto& v, auto& p) { return put(p.tokens.keys, parsed(v, parse_jwt_keys)); }},
    {"jwt_audience", [](auto& v, auto& p) { return put(p.tokens.audiences, as_texts(v)); }},
    {"jwt_issuer", [](auto& v, auto& p) { return put(p.tokens.issuers, as_texts(v)); }},
    {"jwt_unverified", [](auto& v, auto& p) { return put(p.tokens.unverified, as_switch(v)); }},
    {"accounts", [](auto& v, auto& p) { return put(p.accounts, parsed(v, parse_file)); }},
    {"reauthorize", [](auto& v, auto& p) { return put(p.reauthorize, parsed(v, parse_reauthorization)); }},
    {"reauthorize_for", [](auto& v, auto& p) { return put(p.reauthorize_for, as_duration(v)); }},
    {"lease", [](auto& v, auto& p) { return put(p.lease, as_duration(v)); }},
    {"upstream_timeout", [](auto& v, auto& p) { return put(p.upstream_timeout, as_duration(v, Millis(1))); }},
    {"wait", [](auto& v, auto& p) { return put(p.wait, as_duration(v)); }},
    {"audit", [](auto& v, auto& p) { return put_word(p.audit, v); }},
    {"redact", [](auto& v, auto& p) { return put(p.redact, as_switch(v)); }},
    {"rate_exempts_replays", [](auto& v, auto& p) { return put(p.rate_exempts_replays, as_switch(v)); }},
};

constexpr Setting<Policy> kPolicySettings[] = {
    {"methods", [](auto& v, auto& p) { return put(p.methods, as_list(v, parse_method)); }},
    {"key_syntax", [](auto& v, auto& p) { return put_word(p.key_syntax, v); }},
    {"strict", [](auto& v, auto& p) { return put(p.strict, as_switch(v)); }},
    {"identity", [](auto& v, auto& p) { return put_word(p.identity, v); }},
    {"fingerprint", [](auto& v, auto& p) { return put_word(p.fingerprint, v); }},
    {"fingerprint_ignore", [](auto& v, auto& p) { return put(p.fingerprint_ignore, as_list(v, parse_pointer)); }},
    {"fingerprint_headers", [](auto& v, auto& p) { return put(p.fingerprint_headers, as_list(v, parse_header_name)); }},
    {"allow_encoded_slash", [](auto& v, auto& p) { return put(p.allow_encoded_slash, as_switch(v)); }},
    {"key", [](auto& v, auto& p) { return put_word(p.key, v); }},
    {"mismatch", [](auto& v, auto& p) { return put_refusal_status(p.mismatch_status, v); }},
    {"in_progress", [](auto& v, auto& p) { return put_refusal_status(p.in_progress_status, v); }},
    {"kept", [](auto& v, auto& p) { return put(p.kept, parsed(v, parse_statuses)); }},
    {"heed_should_retry", [](auto& v, auto& p) { return put(p.heed_should_retry, as_switch(v)); }},
    {"on_unknown", [](auto& v, auto& p) { return put_word(p.on_unknown, v); }},
    {"on_abandoned", [](auto& v, auto& p) { return put_word(p.on_abandoned, v); }},
    {"errors", [](auto& v, auto& p) { return put_word(p.errors, v); }},
    {"key_from", [](auto& v, auto& p) { return put(p.key_from, as_list(v, parse_key_source)); }},
    {"window", [](auto& v, auto& p) { return put(p.window, as_duration(v)); }},
    {"max_waiters", [](auto& v, auto& p) { return put_count(p.max_waiters, v, 0); }},
    {"max_request_body", [](auto& v, auto& p) { return put(p.max_request_body, as_bytes(v)); }},
    {"max_stored_body", [](auto& v, auto& p) { return put(p.max_stored_body, as_bytes(v)); }},
    {"probe", [](auto& v, auto& p) { return put(p.probe, parsed(v, parse_probe)); }},
    {"mode", [](auto& v, auto& p) { return put_word(p.mode, v); }},
    {"on_store_error", [](auto& v, auto& p) { return put_word(p.on_store_error, v); }},
    {"replay_set_cookie", [](auto& v, auto& p) { return put(p.replay_set_cookie, as_switch(v)); }},
    {"require_framed_answers", [](auto& v, auto& p) { return put(p.require_framed_answers, as_switch(v)); }},
    {"rate", [](auto& v, auto& p) { return put(p.rates.rate, parsed(v, parse_rate)); }},
    {"burst", [](auto& v, auto& p) { return put(p.rates.burst, as_burst(v)); }},
    {"test_rate", [](auto& v, auto& p) { return put(p.rates.test_rate, parsed(v, parse_rate)); }},
    {"test_burst", [](auto& v, auto& p) { return put(p.rates.test_burst, as_burst(v)); }},
    {"max_in_flight", [](auto& v, auto& p) { return put_count(p.rates.max_in_flight, v, 1); }},
    {"respond_async", [](auto& v, auto& p) { return put(p.respond_async, as_switch(v)); }},
    {"compress", [](auto& v, auto& p) { return put(p.compress, as_switch(v)); }},
};

} // namespace

Settings<Route> route_settings() { return kRouteSettings; }
Settings<Policy> default_settings() { return kDefaultSettings; }
Settings<Policy> policy_settings() { return kPolicySettings; }

Result<Policy> as_policy(const Node& node) {
  return and_then(as_text(node), [](const std::string& name) -> Result<Policy> {
    if (auto policy = policy_by_name(name)) return *std::move(policy);
    const std::vector<std::string_view> known(policy_names().begin(), policy_names().end());
    return invalid("unknown policy \"{}\"; use one of {}{}", name, fmt::join(known, ", "), did_you_mean(name, known));
  });
}

} // namespace oncekey
