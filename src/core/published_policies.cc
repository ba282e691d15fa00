// The document at /.well-known/idempotency: what a client may rely on. It may name where the account comes from, and
// never names any account.
#include "base/durations.h"
#include "base/json_text.h"
#include "core/key.h"
#include "core/policy_text.h"
#include "core/replies.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

std::string json_string(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return json;
}

template <class Range, class Text>
std::string quoted_list(const Range& range, Text text) {
  std::string json = "[";
  for (const auto& item : range) {
    if (json.size() > 1) json += ", ";
    json += json_string(text(item));
  }
  return json + "]";
}

// The syntaxes as a client has to write them; see docs/POLICIES.md.
std::string key_syntax(const Policy& policy) {
  const bool strict = policy.key_syntax == KeySyntax::structured_string && policy.strict;
  return strict ? "structured-string, strict" : std::string(to_string(policy.key_syntax));
}

class PolicyObject {
 public:
  explicit PolicyObject(const Policy& policy) : policy_(policy) {}

  void member(std::string_view name, std::string_view value) {
    json_ += json_.empty() ? "    {\n" : ",\n";
    json_ += fmt::format("      \"{}\": {}", name, value);
  }
  void key_rules() {
    member("key_syntax", json_string(key_syntax(policy_)));
    member("key_length_max", fmt::format("{}", kKeyLengthMax));
  }
  void expiry() {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(policy_.retention).count();
    member("retention", json_string(format_duration(policy_.retention)));
    member("retention_seconds", fmt::format("{}", seconds));
    if (policy_.window > Millis(0)) member("window", json_string(format_duration(policy_.window)));
  }
  void statuses() {
    member("replayed_statuses", json_string(policy_.kept.to_string()));
    member("mismatch_status", fmt::format("{}", policy_.mismatch_status));
    member("in_progress_status", fmt::format("{}", policy_.in_progress_status));
  }
  std::string text() const { return json_ + "\n    }"; }

 private:
  const Policy& policy_;
  std::string json_;
};

std::string expiry_object(const Policy& policy) {
  PolicyObject object(policy);
  std::vector<std::string> headers;
  for (const KeySource& source : policy.key_from) {
    if (source.kind == KeySource::Kind::header) headers.push_back(source.name);
  }
  object.member("key_headers", quoted_list(headers, [](const std::string& name) { return name; }));
  object.key_rules();
  object.expiry();
  object.statuses();
  return object.text();
}

std::string route_object(const PublishedRoute& route) {
  const Policy& policy = *route.policy;
  const auto as_text = [](const auto& source) { return to_string(source); };
  PolicyObject object(policy);
  const auto member = [&](std::string_view name, std::string_view value) { object.member(name, value); };
  member("path", json_string(route.path));
  member("methods", quoted_list(policy.methods, [](const std::string& method) { return method; }));
  member("policy", json_string(policy.name));
  member("key_required", policy.key == MissingKey::required ? "true" : "false");
  member("key_from", quoted_list(policy.key_from, as_text));
  object.key_rules();
  member("scope", quoted_list(policy.scope, as_text));
  member("identity", json_string(to_string(policy.identity)));
  member("fingerprint", json_string(to_string(policy.fingerprint)));
  member("ignore_host", policy.ignore_host ? "true" : "false");
  object.expiry();
  object.statuses();
  return object.text();
}

std::string document(std::string_view name, const std::vector<std::string>& objects) {
  return fmt::format("{{\n  \"{}\": [\n{}\n  ]\n}}\n", name, fmt::join(objects, ",\n"));
}

} // namespace

std::string published_expiry(const std::vector<PublishedRoute>& routes) {
  std::vector<std::string> objects;
  for (const PublishedRoute& route : routes) {
    std::string object = expiry_object(*route.policy);
    if (std::find(objects.begin(), objects.end(), object) == objects.end()) objects.push_back(std::move(object));
  }
  return document("policies", objects);
}

std::string published_routes(const std::vector<PublishedRoute>& routes) {
  std::vector<std::string> objects;
  for (const PublishedRoute& route : routes) objects.push_back(route_object(route));
  return document("routes", objects);
}

} // namespace oncekey
