// admission: may a request go on, and under which record? The first part of the flow:
// principal → rate limit → key → read body → fingerprint.
//
// The rules are screen() and admit() of the core. Here is their order, and what has to be read and held between them.
#pragma once

#include "core/admit.h"
#include "core/limit.h"
#include "core/store.h"
#include "gateway/shared.h"

namespace oncekey {

// What the limits of its account say about a request.
struct Limited {
  std::optional<Refusal> refusal; // it is over one of them
  std::optional<AccountPlaces::Place> place;
  // The token it has taken, to be given back if that proves to be unnecessary.
  std::optional<RateBucketId> bucket;
  Rate rate;
};

// A limiter that cannot reach its counts lets the request pass.
Task<void> ask_limits(GatewayThread& thread, Exchange& exchange, const Route& route, const Requester& requester,
                      Limited& out);

// A request that was admitted under a key. It does not change from here on.
struct KeyedRequest {
  const RequestHead& head;
  ForwardedFrom from;
  const Route& route;
  Admitted admitted;
  std::string body;
  bool answer_later = false; // the client asked for it and the route allows it
  std::optional<TraceId> trace{};
};

// What the store is asked for it.
ClaimRequest claim_for(const GatewayShared& shared, const KeyedRequest& request);

// What a record takes before it has an answer: its fixed fields and the texts for people.
std::uint64_t claim_bytes(const KeyedRequest& request);

class Admission {
 public:
  Admission(GatewayThread& thread, Exchange& exchange, const Route& route);

  enum class Outcome {
    keyed,    // take() gives the request
    passes,   // it has no key, and needs none
    refused,  // refusal() says why
    answered, // its HTTP is wrong, or the client is gone: there is nothing more to do
  };
  Task<Outcome> ask();

  const Refusal& refusal() const { return *refusal_; }
  KeyedRequest take();
  // What was read of the body; null if nothing was asked for yet.
  const std::string* body() const { return body_asked_ ? &body_ : nullptr; }

  const Sharer& sharer() const { return sharer_; }
  BufferedBytes& buffered() { return *buffered_; }
  Limited& limited() { return limited_; }

 private:
  Outcome refuse(Refusal refusal);
  // Without a key a request is held to the limits, whatever `rate_exempts_replays` says.
  Outcome pass();
  std::optional<Refusal> refuse_websocket_head() const;
  Task<Outcome> refuse_body(BodyRead read);

  GatewayThread& thread_;
  Exchange& exchange_;
  const Route& route_;
  const Policy& policy_;
  const RequestCaller caller_;
  const Requester requester_;
  const bool observing_;
  const bool websocket_;
  Sharer sharer_;
  Limited limited_;
  std::optional<BufferedBytes> buffered_;
  std::string body_;
  bool body_asked_ = false;
  std::optional<Refusal> refusal_;
  Admitted admitted_;
};

// Whether the request has a key header of the policy, whatever is in it.
bool has_key_header(const Policy& policy, const Headers& headers);
// Why a WebSocket cannot be opened with a key.
Refusal no_websocket(std::string_view detail = "Open it without a key.");

// A proxy in front may have added fields that say who the caller is. A client must not have them removed by naming them
// in Connection: true when the request was answered for that.
Task<bool> refuse_stripping(Exchange& exchange, const RouteMetrics& metrics);

} // namespace oncekey
