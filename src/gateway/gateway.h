// gateway: the life of a request, from its head to its answer. docs/LIFE_OF_A_REQUEST.md tells the same in prose.
//
// Decisions are made by the pure functions of the core (screen, admit, decide, settle); what is here is their order and
// the effects between them. One Gateway runs per thread; what they share is in GatewayShared.
#pragma once

#include "core/admit.h"
#include "core/decide.h"
#include "core/replies.h"
#include "core/settle.h"
#include "gateway/await_store.h"
#include "gateway/lease_keeper.h"
#include "gateway/shared.h"
#include "http/server.h"
#include "http/tunnel.h"
#include "http/upstream.h"

#include <memory>
#include <string>
#include <string_view>

namespace oncekey {

// What a request must have to begin something new; docs/LIMITS.md says what is refused first when there is too much.
struct NewWork {
  std::optional<Holding> place;            // of the caller's share in the calls to the upstream
  std::optional<Places::Place> of_all;     // of limits.max_in_flight
  std::optional<StoreRoom::Ending> ending; // room in the store for the record's end
  std::optional<UpstreamBreaker::Pass> pass;

  void give_up() {
    place.reset();
    of_all.reset();
    ending.reset();
    pass.reset();
  }
};

// What the limits of its account say about a request.
struct Limited {
  std::optional<Refusal> refusal; // it is over one of them
  std::optional<AccountPlaces::Place> place;
  // The token it has taken, to be given back if that proves to be unnecessary.
  std::optional<RateBucketId> bucket;
  Rate rate;
};

// One keyed request on its way through the gateway.
struct KeyedRequest {
  const RequestHead& head;
  ForwardedFrom from;
  Exchange* client; // null when nobody waits for the answer: it was promised for later
  const Route& route;
  const RouteMetrics& metrics;
  const Sharer& sharer;
  BufferedBytes& buffered; // counts the bodies of both directions
  Admitted admitted;
  std::string body;
  std::string echoed_key; // as the client sent it
  std::string request_id;
  Limited limited{};
  NewWork work{};
  bool answer_later = false; // the client asked for it and the route allows it
  bool retry_counted = false;
  std::optional<LeaseKeeper> keeper{}; // while we are the owner
  bool took_over = false;              // an abandoned claim, so that an earlier owner may have executed

  const Policy& policy() const { return route.policy; }
  void count(std::string_view decision) const {
    if (client == nullptr) {
      metrics.count(decision);
    } else {
      metrics.count(decision, *client);
    }
  }
  ReplyContext context() const {
    return {echoed_key, request_id, head.headers.get("Origin").value_or(std::string_view{})};
  }
};

class Gateway final : public Handler {
 public:
  // `pools` are those of this thread.
  Gateway(GatewayShared& shared, UpstreamPools& pools, Loop& timers);

  Task<void> handle(Exchange& exchange) override;
  // Closes the tunnels of this thread, on this thread, and lets no new one begin.
  void end_tunnels();

 private:
  // What an owner's attempt came to.
  enum class Attempt {
    answered, // the client has its answer
    lost,     // the lease was taken over meanwhile: the answer must come from the record
  };

  // gateway.cc
  Task<void> handle_routed(Exchange& exchange, const Route& route, const RouteMetrics& metrics);
  // True when the request was refused because Connection names an end-to-end field of it.
  Task<bool> refuse_stripping(Exchange& exchange, const RouteMetrics& metrics);
  Task<bool> tell_stripping(Exchange& exchange, const RouteMetrics& metrics, std::string_view field);
  Task<void> handle_keyed(KeyedRequest& request);
  Task<Result<ClaimAnswer>> claim(const KeyedRequest& request, MonotonicTime start);
  Task<Result<ClaimAnswer>> look(const KeyedRequest& request);
  // For a record that was only read: if its owner is a live call of this process, its lease counts as renewed.
  void trust_owner_here(const RecordId& id, Found& found, Millis lease) const;
  void count_retry(KeyedRequest& request, const ClaimAnswer& answer, MonotonicTime now);
  // Once a record is known to exist, executing past the store would be executing twice.
  enum class Bypass { no, if_the_route_says_so };
  Task<bool> still_in_progress(const KeyedRequest& request);
  Task<void> answer_store_fault(KeyedRequest& request, const Fault& fault, Bypass bypass);
  Task<void> answer_from_record(KeyedRequest& request);
  Task<void> refuse_in_progress(KeyedRequest& request, const Decision& decision, const Record& record);
  Task<void> send_replay(KeyedRequest& request, const StoredResponse& response);
  // Arguments are plain values on purpose: gcc 12 destroys aggregates made inside a co_await expression twice.
  Task<void> send_refusal(KeyedRequest& request, RefusalCode code,
                          std::optional<std::chrono::seconds> retry_after = std::nullopt,
                          Fate fate = Fate::as_the_code_says);
  Task<void> send_refusal(KeyedRequest& request, const Refusal& refusal);
  Task<void> send_refusal(Exchange& exchange, const Policy& policy, const RouteMetrics& metrics,
                          const Refusal& refusal);
  Task<void> send_reply(KeyedRequest& request, const Reply& reply);
  Task<void> send_reply(Exchange& exchange, const Reply& reply);

  // The upstream's answer, now or out of a record; compressed where the route says so and the client accepts it.
  Task<void> send_answer(Exchange& exchange, const Policy& policy, BufferedBytes& buffered, const Reply& head,
                         std::string_view body);
  Task<void> send_compressible(Exchange& exchange, BufferedBytes& buffered, const Reply& head, std::string_view body);
  static void allow_origin(Exchange& exchange, const std::vector<std::string>& allowed);
  // A key on a request that no route protects does nothing: the operator should know.
  void tell_ignored_key(const RequestHead& head, const NormalPath& path);

  // limiting.cc
  Task<void> limit(Exchange& exchange, const Route& route, const Caller& caller, Limited& out);
  Task<void> ask_the_limits(Exchange& exchange, const Route& route, const Caller& caller, Limited& out);
  // Nothing if the request may begin something new; it has what that takes then. Else why not.
  std::optional<Refusal> refuse_new_work(KeyedRequest& request, MonotonicTime now);
  std::optional<Refusal> refuse_growth(const KeyedRequest& request, MonotonicTime now);
  // The store has grown by so many bytes on this caller's account.
  void count_growth(const Sharer& sharer, std::uint64_t bytes);
  void tell_breaker(const Upstream& upstream, std::optional<UpstreamBreaker::Pass>& pass, CallError error,
                    std::string_view reason);
  UpstreamPool& pool_of(const Upstream& upstream) { return *pools_[upstream.index]; }

  // long_running.cc
  struct Detached;
  Task<void> send_accepted(KeyedRequest& request, Millis age); // of the claim
  void detach(KeyedRequest& request, const Claimed& claimed, MonotonicTime before_claim, Verdict verdict);
  Task<void> run_detached(std::unique_ptr<Detached> detached, Claimed claimed, MonotonicTime before_claim,
                          Verdict verdict);
  Task<void> answer_status(Exchange& exchange);

  // reauthorize.cc
  // Whether the caller may still see a stored answer. If not, the client has been told so.
  Task<bool> may_see_answer(Exchange& exchange, const Route& route, const RouteMetrics& metrics, std::string_view key);
  Task<bool> ask_upstream_for_consent(Exchange& exchange, const Route& route, const RouteMetrics& metrics,
                                      std::string_view key);

  // execution.cc
  Task<Attempt> execute(KeyedRequest& request, const Claimed& claimed, MonotonicTime before_claim, Verdict verdict);
  // Nothing renews the lease any more, and the key stays claimed until it is over.
  void give_up(KeyedRequest& request, const Ownership& owner);
  Task<bool> renew(KeyedRequest& request, const Ownership& owner);
  Task<void> release(KeyedRequest& request, const Ownership& owner);
  Task<void> hold(KeyedRequest& request, const Ownership& owner);
  struct Called;
  Task<void> call_upstream(KeyedRequest& request, const Ownership& owner, Called& called);
  Task<void> probe_upstream(KeyedRequest& request, const Ownership& owner, Called& called);
  enum class Relay { no, yes }; // may what comes be passed on to the client?
  Task<void> collect(KeyedRequest& request, UpstreamCall& call, Relay relay, Called& called);
  Task<Attempt> settle_and_answer(KeyedRequest& request, const Ownership& owner, Called& called);
  Task<Attempt> keep_and_answer(KeyedRequest& request, const Ownership& owner, StoredResponse response);
  Task<Attempt> note_executed(KeyedRequest& request, const Ownership& owner, const Called& called);
  Task<void> send_unusable(KeyedRequest& request, const Called& called, Fate fate);
  Task<Attempt> stream_long_answer(KeyedRequest& request, const Ownership& owner, Called& called);
  Task<Result<FenceAnswer>> complete(const Ownership& owner, StoredResponse response);
  UpstreamRequest to_upstream(const KeyedRequest& request, const Ownership& owner) const;

  // pass_through.cc
  // Streams both ways. `body` is what was read of the request already, if anything; `marks` are added to the answer.
  // `patience` is how long either side may stay silent. `passed`, where given, learns what came of it.
  struct Passed;
  Task<void> pass_through(Exchange& exchange, Upstream& upstream, const Sharer& sharer, Millis patience,
                          const Headers& marks, const std::string* body, Passed* passed = nullptr);
  // By the route.
  Task<void> pass_through(Exchange& exchange, const Route& route, const Sharer& sharer, const Headers& marks,
                          const std::string* body, Passed* passed = nullptr);
  // Answers 101 and carries bytes both ways until the tunnel ends.
  Task<void> tunnel(Exchange& exchange, UpstreamCall& call, const Headers& headers, std::string_view reason);
  void tell_failed_pass(const RequestHead& head, std::string_view reason);

  // observe.cc
  Task<void> observe(KeyedRequest& request);

  // What the upstream answered, or why nothing whole came.
  struct Passed {
    CallError error = CallError::none;
    int status = 0;
    Headers headers;
  };

  // For pass_through() where there is nothing to mark.
  static inline const Headers kNoMarks;

  GatewayShared& shared_;
  UpstreamPools& pools_;
  Loop& timers_;
  Wakeups wakeups_;
  RecentAccounts recent_accounts_;
  Timer pulse_; // notices a pause of the process
  VerifiedTokens verified_tokens_;
  boost::intrusive::list<Tunnel, boost::intrusive::constant_time_size<false>> tunnels_;
  bool tunnels_end_ = false;
};

// A call as settle() sees it. `status` and `headers` are those of a whole answer.
Outcome outcome_of(CallError error, int status, const Headers& headers);

// "req_" and sixteen characters, fresh.
std::string make_request_id();

} // namespace oncekey
