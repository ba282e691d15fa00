#include "core/replies.h"

#include "base/durations.h"
#include "base/json_text.h"
#include "core/key.h"
#include "core/policy_text.h"

#include <oncekey/check.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

// Room for the fields that the gateway adds, so that a reply's headers are allocated once.
constexpr std::size_t kAddedBytes = 512;
constexpr std::size_t kAddedFields = 6;

bool is(std::string_view name, std::string_view wanted) { return equal_ignoring_case(name, wanted); }

// Fields that were true for the first call only: a client that follows them would wait without need, or talk to a host
// that has moved.
bool is_stale(std::string_view name) {
  switch (name.empty() ? '\0' : name.front() | 0x20) {
    case 'a':
      return is(name, "Age") || is(name, "Alt-Svc");
    case 'd':
      return is(name, "Date");
    case 'r':
      return is(name, "Retry-After") || starts_with_ignoring_case(name, "RateLimit");
    case 's':
      return is(name, "Server-Timing") || is(name, "Stripe-Rate-Limited-Reason");
    case 'x':
      return starts_with_ignoring_case(name, "X-RateLimit-") || starts_with_ignoring_case(name, "X-Rate-Limit-");
    default:
      return false;
  }
}

bool is_set_cookie(std::string_view name) { return is(name, "Set-Cookie") || is(name, "Set-Cookie2"); }

// Fields of the upstream that the gateway writes itself, or that were meant for the gateway alone.
bool is_ours(std::string_view name, const Policy& policy, const ReplyContext& context) {
  switch (name.empty() ? '\0' : name.front() | 0x20) {
    case 'i':
      return is(name, "Idempotency-Key") && !context.key.empty();
    case 'o':
      return is(name, kOutcomeHeader) || (policy.errors == ErrorFormat::stripe && is(name, "Original-Request"));
    case 'r':
      return policy.errors == ErrorFormat::stripe && is(name, "Request-Id");
    default:
      return false;
  }
}

// Whether the stored CORS fields grant access to the origin of the first request, and this request has another one.
// Such fields are not replayed.
bool grants_another_origin(const StoredResponse& response, const ReplyContext& context) {
  const auto allowed = response.headers.get("Access-Control-Allow-Origin");
  return allowed && *allowed != "*" && *allowed != context.origin;
}

// Whether the answer has a freshness lifetime. Caches count it from Date: with today's date an old answer would stay
// fresh for longer than its server said.
bool has_freshness_lifetime(const StoredResponse& response) {
  if (response.headers.has("Expires")) return true;
  const auto control = response.headers.get("Cache-Control");
  return control && control->find("max-age") != std::string_view::npos;
}

Reply begin_reply(const StoredResponse& response) {
  Reply reply;
  reply.status = response.status;
  reply.reason = response.reason;
  reply.headers.reserve(response.headers.lines().size() + kAddedBytes, response.headers.size() + kAddedFields);
  return reply;
}

void echo_key(Headers& headers, const ReplyContext& context) {
  if (!context.key.empty()) headers.add("Idempotency-Key", context.key);
}

std::string_view first_request_id(const StoredResponse& response, const ReplyContext& context) {
  return response.headers.get("Request-Id").value_or(context.request_id);
}

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

Reply first_answer(const Policy& policy, const StoredResponse& response, const ReplyContext& context, Kept kept) {
  const bool stripe = policy.errors == ErrorFormat::stripe;
  // A kept 5xx is final: without this, clients would retry it for nothing.
  const bool final_error = stripe && kept == Kept::yes && response.status >= 500;
  Reply reply = begin_reply(response);
  bool marked = false; // an upstream with replays of its own may say so, once
  for (std::size_t i = 0; i < response.headers.size(); ++i) {
    const Field field = response.headers[i];
    if (is_ours(field.name, policy, context)) continue;
    if (final_error && is(field.name, "Stripe-Should-Retry")) continue;
    if (is(field.name, "Idempotent-Replayed") && std::exchange(marked, true)) continue;
    reply.headers.add(response.headers, i);
  }
  echo_key(reply.headers, context);
  if (stripe) {
    const std::string_view request_id = first_request_id(response, context);
    reply.headers.add("Request-Id", request_id);
    reply.headers.add("Original-Request", request_id);
  }
  if (final_error) reply.headers.add("Stripe-Should-Retry", "false");
  reply.body = response.body;
  return reply;
}

StoredResponse to_store(const Policy& policy, StoredResponse response, const ReplyContext& context) {
  const bool add_request_id = policy.errors == ErrorFormat::stripe && !response.headers.has("Request-Id");
  response.headers.keep_if([](const Field& field) { return !is(field.name, kOutcomeHeader); });
  if (add_request_id) response.headers.add("Request-Id", context.request_id);
  return response;
}

Conclusion conclude_kept(const Policy& policy, StoredResponse response, const ReplyContext& context) {
  Conclusion conclusion;
  conclusion.reply = first_answer(policy, response, context, Kept::yes);
  conclusion.stored = to_store(policy, std::move(response), context);
  return conclusion;
}

Conclusion conclude(const Policy& policy, StoredResponse response, const ReplyContext& context) {
  const Settlement settlement = settle(policy, Answered{response.status, response.headers});
  if (settlement == Settlement::keep) return conclude_kept(policy, std::move(response), context);
  return {settlement, first_answer(policy, response, context, Kept::no), {}};
}

Reply replay_head(const Policy& policy, const StoredResponse& response, const ReplyContext& context) {
  ONCEKEY_CHECK(!response.omitted, "an answer that was not kept is never replayed");
  const bool stripe = policy.errors == ErrorFormat::stripe;
  const bool other_origin = grants_another_origin(response, context);
  const bool keep_date = has_freshness_lifetime(response);
  Reply reply = begin_reply(response);
  for (std::size_t i = 0; i < response.headers.size(); ++i) {
    const Field field = response.headers[i];
    if (is_ours(field.name, policy, context) || is(field.name, "Idempotent-Replayed")) continue;
    if (is_stale(field.name) && !(keep_date && is(field.name, "Date"))) continue;
    if (other_origin && starts_with_ignoring_case(field.name, "Access-Control-")) continue;
    if (stripe && is(field.name, "Stripe-Should-Retry")) continue;
    if (!policy.replay_set_cookie && is_set_cookie(field.name)) continue;
    reply.headers.add(response.headers, i);
  }
  echo_key(reply.headers, context);
  reply.headers.add("Idempotent-Replayed", "true");
  if (stripe) {
    reply.headers.add("Request-Id", context.request_id);
    reply.headers.add("Original-Request", first_request_id(response, context));
    reply.headers.add("Stripe-Should-Retry", "false");
  }
  return reply;
}

Reply replay(const Policy& policy, const StoredResponse& response, const ReplyContext& context) {
  Reply reply = replay_head(policy, response, context);
  reply.body = response.body;
  return reply;
}

// What a client may rely on. It may name where the account comes from, and never names any account.
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
