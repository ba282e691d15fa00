// The settings of a route: every field of Policy under its own name. How values are spelled is defined in
// core/policy_text.h.
#include "base/masked_url.h"
#include "config/config.h"
#include "config/settings.h"
#include "core/policy_text.h"

#include <algorithm>
#include <array>

namespace oncekey {
namespace {

// Reads text and hands it to one of core's parsers.
template <class T>
Status put_parsed(T& target, const Node& node, Result<T> (*parse)(std::string_view)) {
  const auto text = as_text(node);
  if (!text) return text.fault();
  return put(target, parse(*text));
}

template <class T>
Status put_list(std::vector<T>& target, const Node& node, Result<T> (*parse)(std::string_view)) {
  const auto texts = as_texts(node);
  if (!texts) return texts.fault();
  std::vector<T> items;
  for (const std::string& text : *texts) {
    auto item = parse(text);
    if (!item) return std::move(item).fault();
    if (std::find(items.begin(), items.end(), *item) != items.end())
      return invalid(fmt::format("\"{}\" stands twice in the list", text));
    items.push_back(std::move(item).value());
  }
  target = std::move(items);
  return ok_status();
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

Result<std::string> parse_method(std::string_view text) {
  if (!is_token(text) || std::any_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
    return invalid(fmt::format("\"{}\" is not a method: methods are written in capitals, as in \"POST\"", text));
  if (text == "CONNECT" || text == "TRACE")
    return invalid(fmt::format("{} cannot be protected: it has no answer that could be kept", text));
  return std::string(text);
}

Result<std::string> parse_header_name(std::string_view text) {
  if (!is_token(text)) return invalid(fmt::format("\"{}\" is not the name of a header", text));
  return std::string(text);
}

Result<std::string> parse_pointer(std::string_view text) {
  if (const Status good = check_json_pointer(text); !good) return good.fault();
  return std::string(text);
}

Result<StatusSet> parse_statuses(std::string_view text) {
  if (const auto set = StatusSet::parse(text)) return *set;
  return invalid(
      fmt::format("\"{}\" is not a set of statuses: write statuses and ranges from 100 to 599, with ! for "
                  "those to leave out, as in \"200-499,!429\"",
                  text));
}

Status read_probe(const Node& node, Policy& policy) {
  Probe probe;
  Status read = put_parsed(probe, node, parse_probe);
  if (read) policy.probe = std::move(probe);
  return read;
}

Status read_reauthorize(const Node& node, Policy& policy) {
  Reauthorization question;
  Status read = put_parsed(question, node, parse_reauthorization);
  if (read) policy.reauthorize = std::move(question);
  return read;
}

constexpr std::string_view kFile = "file:";

Status read_jwt_keys(const Node& node, Policy& policy) {
  auto text = as_text(node);
  if (!text) return std::move(text).fault();
  if (!text->starts_with(kFile) || text->size() == kFile.size()) {
    if (const auto url = parse_target_url(*text); !url)
      return invalid(
          fmt::format("\"{}\" names no keys: write \"file:PATH\" of a JSON Web Key Set, or its URL, as in "
                      "\"https://id.example.com/.well-known/jwks.json\"",
                      masked_url(*text)));
  }
  policy.tokens.keys = std::move(text).value();
  return ok_status();
}

Status read_accounts(const Node& node, Policy& policy) {
  auto text = as_text(node);
  if (!text) return std::move(text).fault();
  if (!text->starts_with(kFile) || text->size() == kFile.size())
    return invalid(fmt::format("\"{}\" names no file: write \"file:PATH\"", *text));
  policy.accounts = text->substr(kFile.size());
  return ok_status();
}

// A refusal of the gateway must be a client error: clients would take any other status for an answer of the API.
Status put_refusal_status(int& target, const Node& node) { return put_count(target, node, 400, 499); }

constexpr Setting<Policy> kPolicySettings[] = {
    {"methods", [](const Node& v, Policy& p) { return put_list(p.methods, v, parse_method); }},
    {"key_syntax", [](const Node& v, Policy& p) { return put_parsed(p.key_syntax, v, parse_key_syntax); }},
    {"strict", [](const Node& v, Policy& p) { return put(p.strict, as_switch(v)); }},
    {"identity", [](const Node& v, Policy& p) { return put_parsed(p.identity, v, parse_identity); }},
    {"fingerprint", [](const Node& v, Policy& p) { return put_parsed(p.fingerprint, v, parse_fingerprint_mode); }},
    {"fingerprint_ignore", [](const Node& v, Policy& p) { return put_list(p.fingerprint_ignore, v, parse_pointer); }},
    {"fingerprint_headers",
     [](const Node& v, Policy& p) { return put_list(p.fingerprint_headers, v, parse_header_name); }},
    {"ignore_host", [](const Node& v, Policy& p) { return put(p.ignore_host, as_switch(v)); }},
    {"path_case", [](const Node& v, Policy& p) { return put_parsed(p.path_case, v, parse_path_case); }},
    {"allow_encoded_slash", [](const Node& v, Policy& p) { return put(p.allow_encoded_slash, as_switch(v)); }},
    {"key", [](const Node& v, Policy& p) { return put_parsed(p.key, v, parse_missing_key); }},
    {"mismatch", [](const Node& v, Policy& p) { return put_refusal_status(p.mismatch_status, v); }},
    {"in_progress", [](const Node& v, Policy& p) { return put_refusal_status(p.in_progress_status, v); }},
    {"kept", [](const Node& v, Policy& p) { return put_parsed(p.kept, v, parse_statuses); }},
    {"heed_should_retry", [](const Node& v, Policy& p) { return put(p.heed_should_retry, as_switch(v)); }},
    {"retention", [](const Node& v, Policy& p) { return put(p.retention, as_duration(v, Millis(1))); }},
    {"on_unknown", [](const Node& v, Policy& p) { return put_parsed(p.on_unknown, v, parse_on_unknown); }},
    {"on_abandoned", [](const Node& v, Policy& p) { return put_parsed(p.on_abandoned, v, parse_on_abandoned); }},
    {"errors", [](const Node& v, Policy& p) { return put_parsed(p.errors, v, parse_error_format); }},
    {"scope", [](const Node& v, Policy& p) { return put_list(p.scope, v, parse_scope_source); }},
    {"jwt_keys", read_jwt_keys},
    {"jwt_audience", [](const Node& v, Policy& p) { return put(p.tokens.audiences, as_texts(v)); }},
    {"jwt_issuer", [](const Node& v, Policy& p) { return put(p.tokens.issuers, as_texts(v)); }},
    {"jwt_unverified", [](const Node& v, Policy& p) { return put(p.tokens.unverified, as_switch(v)); }},
    {"accounts", read_accounts},
    {"reauthorize", read_reauthorize},
    {"reauthorize_for", [](const Node& v, Policy& p) { return put(p.reauthorize_for, as_duration(v, Millis(0))); }},
    {"key_from", [](const Node& v, Policy& p) { return put_list(p.key_from, v, parse_key_source); }},
    {"window", [](const Node& v, Policy& p) { return put(p.window, as_duration(v, Millis(0))); }},
    {"lease", [](const Node& v, Policy& p) { return put(p.lease, as_duration(v, Millis(0))); }},
    {"upstream_timeout", [](const Node& v, Policy& p) { return put(p.upstream_timeout, as_duration(v, Millis(1))); }},
    {"wait", [](const Node& v, Policy& p) { return put(p.wait, as_duration(v, Millis(0))); }},
    {"max_waiters", [](const Node& v, Policy& p) { return put_count(p.max_waiters, v, 0); }},
    {"max_request_body", [](const Node& v, Policy& p) { return put(p.max_request_body, as_bytes(v)); }},
    {"max_stored_body", [](const Node& v, Policy& p) { return put(p.max_stored_body, as_bytes(v)); }},
    {"probe", read_probe},
    {"mode", [](const Node& v, Policy& p) { return put_parsed(p.mode, v, parse_mode); }},
    {"on_store_error", [](const Node& v, Policy& p) { return put_parsed(p.on_store_error, v, parse_on_store_error); }},
    {"replay_set_cookie", [](const Node& v, Policy& p) { return put(p.replay_set_cookie, as_switch(v)); }},
    {"require_framed_answers", [](const Node& v, Policy& p) { return put(p.require_framed_answers, as_switch(v)); }},
    {"rate", [](const Node& v, Policy& p) { return put(p.rates.rate, as_rate(v)); }},
    {"burst", [](const Node& v, Policy& p) { return put(p.rates.burst, as_burst(v)); }},
    {"test_rate", [](const Node& v, Policy& p) { return put(p.rates.test_rate, as_rate(v)); }},
    {"test_burst", [](const Node& v, Policy& p) { return put(p.rates.test_burst, as_burst(v)); }},
    {"max_in_flight", [](const Node& v, Policy& p) { return put_count(p.rates.max_in_flight, v, 1); }},
    {"rate_exempts_replays", [](const Node& v, Policy& p) { return put(p.rate_exempts_replays, as_switch(v)); }},
    {"respond_async", [](const Node& v, Policy& p) { return put(p.respond_async, as_switch(v)); }},
    {"compress", [](const Node& v, Policy& p) { return put(p.compress, as_switch(v)); }},
};

// Settings that are usually the same for all routes of one company.
constexpr std::array<std::string_view, 15> kDefaultsOfAllRoutes{
    "lease",           "retention",    "scope",      "wait",           "upstream_timeout", "rate_exempts_replays",
    "jwt_keys",        "jwt_audience", "jwt_issuer", "jwt_unverified", "accounts",         "reauthorize",
    "reauthorize_for", "ignore_host",  "path_case"};

} // namespace

std::span<const Setting<Policy>> policy_settings() { return kPolicySettings; }

bool may_be_a_default(std::string_view policy_setting) {
  return std::find(kDefaultsOfAllRoutes.begin(), kDefaultsOfAllRoutes.end(), policy_setting) !=
         kDefaultsOfAllRoutes.end();
}

} // namespace oncekey
