#include "core/policy.h"

#include "base/ascii.h"

#include <oncekey/check.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace oncekey {
namespace {

constexpr int kStatusFirst = 100;
constexpr int kStatusLast = 599;

bool is_status(int status) { return status >= kStatusFirst && status <= kStatusLast; }

std::string_view without_spaces(std::string_view text) { return trimmed(text, " "); }

std::optional<int> parse_status(std::string_view text) {
  int status = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), status);
  if (error != std::errc{} || end != text.data() + text.size() || text.size() != 3 || !is_status(status))
    return std::nullopt;
  return status;
}

StatusSet statuses(int first, int last, std::initializer_list<int> but) {
  StatusSet set;
  set.insert(first, last);
  for (const int status : but) set.erase(status);
  return set;
}

ScopeSource header_scope(std::string name, bool optional = false) {
  return {ScopeSource::Kind::header, std::move(name), optional};
}

// The consensus of published APIs. Statuses below 500 that are not kept mean "not now" (408, 409, 425, 429) or are
// about the credentials and not about the work (401, 403): the same request may succeed a moment later.
Policy classic() {
  Policy policy;
  policy.name = "classic";
  policy.methods = {"POST", "PATCH"};
  policy.kept = statuses(200, 499, {401, 403, 408, 409, 425, 429});
  policy.scope = {header_scope("Authorization")};
  policy.key_from = {{KeySource::Kind::header, "Idempotency-Key"}};
  return policy;
}

// Modelled on draft-ietf-httpapi-idempotency-key-header: a structured field, required, one namespace per account.
Policy ietf() {
  Policy policy = classic();
  policy.name = "ietf";
  policy.key_syntax = KeySyntax::structured_string;
  policy.identity = Identity::key;
  policy.key = MissingKey::required;
  policy.errors = ErrorFormat::problem_link;
  return policy;
}

// What both generations of Stripe's API share.
Policy stripe() {
  Policy policy = classic();
  policy.key_syntax = KeySyntax::raw;
  policy.fingerprint = FingerprintMode::canonical;
  policy.mismatch_status = 400;
  policy.errors = ErrorFormat::stripe;
  policy.heed_should_retry = true;
  policy.scope.push_back(header_scope("Stripe-Account", true));
  return policy;
}

// Once an endpoint has begun, every answer is final, also a 500. So an unknown outcome is held and not executed twice.
Policy stripe_v1() {
  Policy policy = stripe();
  policy.name = "stripe-v1";
  policy.methods = {"POST"};
  policy.identity = Identity::key;
  policy.kept = statuses(200, 599, {401, 409, 429});
  policy.on_unknown = OnUnknown::hold;
  policy.on_abandoned = OnAbandoned::hold;
  return policy;
}

// Success is final, failure may be tried again under the same key.
Policy stripe_v2() {
  Policy policy = stripe();
  policy.name = "stripe-v2";
  policy.methods = {"POST", "DELETE"};
  policy.kept = statuses(200, 399, {});
  policy.retention = std::chrono::hours(24 * 30);
  return policy;
}

// Every policy that a route can name.
struct NamedPolicy {
  std::string_view name;
  Policy (*make)();
};
constexpr NamedPolicy kNamedPolicies[] = {
    {"classic", classic}, {"ietf", ietf}, {"stripe-v1", stripe_v1}, {"stripe-v2", stripe_v2}};

} // namespace

void StatusSet::insert(int first, int last) {
  ONCEKEY_CHECK(is_status(first) && is_status(last), "a status set holds 100 to 599");
  for (int status = first; status <= last; ++status) bits_.set(static_cast<std::size_t>(status));
}

void StatusSet::erase(int status) {
  ONCEKEY_CHECK(is_status(status), "a status set holds 100 to 599");
  bits_.reset(static_cast<std::size_t>(status));
}

bool StatusSet::contains(int status) const { return is_status(status) && bits_.test(static_cast<std::size_t>(status)); }

std::optional<StatusSet> StatusSet::parse(std::string_view text) {
  StatusSet set;
  if (without_spaces(text) == "none") return set;
  for (;;) {
    const std::size_t comma = text.find(',');
    std::string_view item = without_spaces(text.substr(0, comma));
    const bool take_away = item.starts_with('!');
    if (take_away) item = without_spaces(item.substr(1));
    const std::size_t dash = item.find('-');
    const auto first = parse_status(without_spaces(item.substr(0, dash)));
    const auto last = dash == std::string_view::npos ? first : parse_status(without_spaces(item.substr(dash + 1)));
    if (!first || !last || *first > *last) return std::nullopt;
    if (take_away) {
      for (int status = *first; status <= *last; ++status) set.erase(status);
    } else {
      set.insert(*first, *last);
    }
    if (comma == std::string_view::npos) return set;
    text.remove_prefix(comma + 1);
  }
}

std::string StatusSet::to_string() const {
  std::string text;
  for (int first = kStatusFirst; first <= kStatusLast; ++first) {
    if (!contains(first)) continue;
    int last = first;
    while (contains(last + 1)) ++last;
    if (!text.empty()) text.push_back(',');
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text.empty() ? "none" : text;
}

bool has_scope(const Policy& policy, ScopeSource::Kind kind) {
  return std::any_of(policy.scope.begin(), policy.scope.end(),
                     [kind](const ScopeSource& source) { return source.kind == kind; });
}

bool uses_fingerprint_as_key(const Policy& policy) {
  return std::any_of(policy.key_from.begin(), policy.key_from.end(),
                     [](const KeySource& source) { return source.kind == KeySource::Kind::fingerprint; });
}

std::optional<Policy> policy_by_name(std::string_view name) {
  for (const auto& [known, make] : kNamedPolicies) {
    if (known == name) return make();
  }
  return std::nullopt;
}

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, make] : kNamedPolicies) all.emplace_back(name);
    return all;
  }();
  return names;
}

} // namespace oncekey
