// replies: the exact bytes of the gateway's own answers, and what it adds to and removes from an upstream's answer.
#pragma once

#include "core/policy.h"
#include "core/refusal.h"
#include "core/settle.h"

#include <oncekey/headers.h>
#include <oncekey/record.h>

#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// An answer to a client, without framing fields (Content-Length, Connection) and Date: the http room adds those.
struct Reply {
  int status = 0;
  std::string reason;
  Headers headers;
  std::string body;
};

// The facts of one request that a policy's headers depend on.
struct ReplyContext {
  std::string_view key;        // as the client sent it; echoed
  std::string_view request_id; // fresh for every request, e.g. "req_…"
  std::string_view origin;     // the request's Origin; empty when it has none
};

// The error body in the policy's format, with a stable type and a sentence on what to do next.
Reply refuse(const Policy& policy, const Refusal& refusal, const ReplyContext& context);

// The upstream's answer, as it goes to the client whose request was executed: the response plus what the policy adds.
// `kept` says whether a retry will get this answer again.
enum class Kept { yes, no };
Reply first_answer(const Policy& policy, const StoredResponse& response, const ReplyContext& context, Kept kept);

// What the record keeps: the response plus what a replay needs later (the Stripe policies' first Request-Id).
StoredResponse to_store(const Policy& policy, StoredResponse response, const ReplyContext& context);

// What a whole answer of the upstream comes to: for the key, for the client and for the record.
struct Conclusion {
  Settlement settlement = Settlement::keep;
  Reply reply;
  StoredResponse stored; // where it is kept
};
Conclusion conclude(const Policy& policy, StoredResponse response, const ReplyContext& context);
// The same for an answer that is kept whatever its status says.
Conclusion conclude_kept(const Policy& policy, StoredResponse response, const ReplyContext& context);

// The head of a replay from a completed record. Its body is left empty: the caller sends the record's body without a
// copy. Must not be called for an omitted body.
Reply replay_head(const Policy& policy, const StoredResponse& response, const ReplyContext& context);
// The whole replay, with a copy of the record's body.
Reply replay(const Policy& policy, const StoredResponse& response, const ReplyContext& context);

// The document at /.well-known/idempotency.
struct PublishedRoute {
  std::string path;
  const Policy* policy;
};
// What a client must know to use keys, and how long they are remembered, as the IETF draft asks: one entry for each set
// of rules. It names neither paths nor scopes, because anonymous clients read it.
std::string published_expiry(const std::vector<PublishedRoute>& routes);
// Everything, route by route.
std::string published_routes(const std::vector<PublishedRoute>& routes);

} // namespace oncekey
