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

// With a path, everything about its route; without one, what every client must know to use keys.
std::string object_of(const Policy& policy, const std::string* path) {
  std::vector<std::string> members;
  const auto add = [&](std::string_view name, const auto& json) {
    members.push_back(fmt::format("      \"{}\": {}", name, json));
  };
  const auto as_it_is = [](const std::string& text) { return text; };
  const auto as_text = [](const auto& source) { return to_string(source); };
  if (path != nullptr) {
    add("path", json_string(*path));
    add("methods", quoted_list(policy.methods, as_it_is));
    add("policy", json_string(policy.name));
    add("key_required", policy.key == MissingKey::required);
    add("key_from", quoted_list(policy.key_from, as_text));
  } else {
    std::vector<std::string> headers;
    for (const KeySource& source : policy.key_from) {
      if (source.kind == KeySource::Kind::header) headers.push_back(source.name);
    }
    add("key_headers", quoted_list(headers, as_it_is));
  }
  // The syntaxes as a client has to write them; see docs/POLICIES.md.
  const bool strict = policy.key_syntax == KeySyntax::structured_string && policy.strict;
  add("key_syntax", json_string(strict ? "structured-string, strict" : to_string(policy.key_syntax)));
  add("key_length_max", kKeyLengthMax);
  if (path != nullptr) {
    add("scope", quoted_list(policy.scope, as_text));
    add("identity", json_string(to_string(policy.identity)));
    add("fingerprint", json_string(to_string(policy.fingerprint)));
    add("ignore_host", policy.ignore_host);
  }
  add("retention", json_string(format_duration(policy.retention)));
  add("retention_seconds", std::chrono::duration_cast<std::chrono::seconds>(policy.retention).count());
  if (policy.window > Millis(0)) add("window", json_string(format_duration(policy.window)));
  add("replayed_statuses", json_string(policy.kept.to_string()));
  add("mismatch_status", policy.mismatch_status);
  add("in_progress_status", policy.in_progress_status);
  return fmt::format("    {{\n{}\n    }}", fmt::join(members, ",\n"));
}

std::string document(std::string_view name, const std::vector<std::string>& objects) {
  return fmt::format("{{\n  \"{}\": [\n{}\n  ]\n}}\n", name, fmt::join(objects, ",\n"));
}

} // namespace

std::string published_expiry(const std::vector<PublishedRoute>& routes) {
  std::vector<std::string> objects;
  for (const PublishedRoute& route : routes) {
    std::string object = object_of(*route.policy, nullptr);
    if (std::find(objects.begin(), objects.end(), object) == objects.end()) objects.push_back(std::move(object));
  }
  return document("policies", objects);
}

std::string published_routes(const std::vector<PublishedRoute>& routes) {
  std::vector<std::string> objects;
  for (const PublishedRoute& route : routes) objects.push_back(object_of(*route.policy, &route.path));
  return document("routes", objects);
}

} // namespace oncekey
