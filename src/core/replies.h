// replies: the exact bytes of what the gateway says by itself, and of what it adds to or takes from an upstream answer.
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

// A response in the making. Framing fields (Content-Length, Connection) and Date are the HTTP side's business.
struct Reply {
  int status = 0;
  std::string reason;
  Headers headers;
  std::string body;
};

// What the policies' reply headers need to know of this one request.
struct ReplyContext {
  std::string_view key;        // as the client sent it; echoed
  std::string_view request_id; // fresh for every request, e.g. "req_…"
  std::string_view origin;     // the request's Origin; empty when it has none
};

// The error body in the policy's format, with a stable type and a sentence on what to do next.
Reply refuse(const Policy& policy, const Refusal& refusal, const ReplyContext& context);

// The upstream's answer, as it goes to the client who caused it: the response plus what the policy adds. `kept` says
// whether a retry will get this answer again.
enum class Kept { yes, no };
Reply first_answer(const Policy& policy, const StoredResponse& response, const ReplyContext& context, Kept kept);

// What is put into the record: the response plus what a replay must still know (the Stripe policies' first Request-Id).
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

// The answer out of a completed record, but for its body: that is sent from where it is. Must not be called for an
// omitted body.
Reply replay_head(const Policy& policy, const StoredResponse& response, const ReplyContext& context);
// The same with the body.
Reply replay(const Policy& policy, const StoredResponse& response, const ReplyContext& context);

// The document at /.well-known/idempotency.
struct PublishedRoute {
  std::string path;
  const Policy* policy;
};
// What a client must know to use keys and to know how long they count, as the IETF draft asks: one entry for each set
// of rules. Neither paths nor scopes: anonymous clients read this.
std::string published_expiry(const std::vector<PublishedRoute>& routes);
// Everything, route by route.
std::string published_routes(const std::vector<PublishedRoute>& routes);

} // namespace oncekey
