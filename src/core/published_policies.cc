// The document at /.well-known/idempotency: what a client may rely on, route by route. It names where the account comes
// from and never any account.
#include "base/durations.h"
#include "core/json_text.h"
#include "core/key.h"
#include "core/policy_text.h"
#include "core/replies.h"

#include <fmt/format.h>

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

std::string route_object(const PublishedRoute& route) {
  const Policy& policy = *route.policy;
  const auto as_text = [](const auto& source) { return to_string(source); };
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(policy.retention).count();
  std::string json = "    {\n";
  const auto member = [&json](std::string_view name, std::string_view value, std::string_view end = ",\n") {
    json += fmt::format("      \"{}\": {}{}", name, value, end);
  };
  member("path", json_string(route.path));
  member("methods", quoted_list(policy.methods, [](const std::string& method) { return method; }));
  member("policy", json_string(policy.name));
  member("key_required", policy.key == MissingKey::required ? "true" : "false");
  member("key_from", quoted_list(policy.key_from, as_text));
  member("key_syntax", json_string(key_syntax(policy)));
  member("key_length_max", fmt::format("{}", kKeyLengthMax));
  member("scope", quoted_list(policy.scope, as_text));
  member("identity", json_string(to_string(policy.identity)));
  member("fingerprint", json_string(to_string(policy.fingerprint)));
  member("retention", json_string(format_duration(policy.retention)));
  member("retention_seconds", fmt::format("{}", seconds));
  if (policy.window > Millis(0)) member("window", json_string(format_duration(policy.window)));
  member("replayed_statuses", json_string(policy.kept.to_string()));
  member("mismatch_status", fmt::format("{}", policy.mismatch_status));
  member("in_progress_status", fmt::format("{}", policy.in_progress_status), "\n");
  return json + "    }";
}

} // namespace

std::string published_policies(const std::vector<PublishedRoute>& routes) {
  std::string json = "{\n  \"routes\": [";
  for (std::size_t i = 0; i < routes.size(); ++i) {
    json += i == 0 ? "\n" : ",\n";
    json += route_object(routes[i]);
  }
  return json + "\n  ]\n}\n";
}

} // namespace oncekey
