// replier: the one answer of a request.
//
// Refusals, replays and the upstream's first answers leave through here and nowhere else: each is counted, carries the
// key and the request's id, and is marked as the gateway's own where it is.
#pragma once

#include "core/decide.h"
#include "core/replies.h"
#include "gateway/shared.h"

namespace oncekey {

class Replier {
 public:
  // `client` is null when no client waits for the answer: it was promised for later.
  Replier(GatewayThread& thread, const Policy& policy, const RouteMetrics& metrics, Exchange* client)
      : thread_(thread),
        policy_(policy),
        metrics_(metrics),
        client_(client),
        trace_(client == nullptr ? nullptr : client->trace()) {}
  // The same request once it goes on without its client. `trace` gets its parts; null where it is not traced.
  Replier(const Replier& other, TraceNote* trace);
  Replier& operator=(Replier&&) = delete;

  // From here on answers name the key. `as_sent` is echoed.
  void key_is(const RecordId& id, std::string key, std::string as_sent);

  const Policy& policy() const { return policy_; }
  const RouteMetrics& metrics() const { return metrics_; }
  Exchange* client() const { return client_; }
  // Null unless the request is traced.
  TraceNote* trace() const { return trace_; }
  const std::string& key() const { return key_; }
  // Views into this.
  ReplyContext context() const;
  // One more request that ended in this decision.
  void count(std::string_view decision) const;
  // A line of the audit log, where the route asks for its decisions; nothing before the key is known.
  void audit(std::string_view event, std::string_view decision, int status) const;
  // The claim that the next lines are about.
  void fence_is(std::uint64_t fence);

  // Arguments are plain values on purpose: gcc 12 destroys aggregates made inside a co_await expression twice.
  Task<void> refuse(RefusalCode code, std::optional<std::chrono::seconds> retry_after = std::nullopt,
                    Fate fate = Fate::by_code);
  // `refusal` is not used any more once this has returned its task.
  Task<void> refuse(const Refusal& refusal);
  // 202: the answer is promised, and can be fetched under `url`. `age` is that of the claim.
  Task<void> send_accepted(std::string_view url, Millis age);
  // 202 to a request for that status URL: not yet.
  Task<void> send_pending(std::string_view url, Millis age);
  // The upstream's answer, compressed where the route says so and the client accepts it.
  Task<void> send_answer(BufferedBytes& buffered, const Reply& head, std::string_view body);
  // The answer out of a record, if the caller may still see it. The body counts in `buffered` until the client has
  // taken it; without room for it the client is told to come again.
  Task<void> replay(const Route& route, BufferedBytes& buffered, const StoredResponse& response);
  // What a settled record answers: its answer, or why that cannot be had. Nothing if the record is not settled.
  std::optional<Task<void>> answer_settled(const Route& route, BufferedBytes& buffered, Verdict verdict,
                                           const Record& record);
  // That the record is in progress, and when a retry is likely to succeed.
  Task<void> refuse_in_progress(const RecordId& id, const Decision& decision, const Record& record);

 private:
  // What the audit log says of this request in each line.
  struct Audited {
    std::string record;
    std::string key; // as the record shows it
    std::string trace;
    std::string first_trace; // of the claim, where that is another request's
    std::uint64_t fence = 0;
  };
  void note_record(const Record& record);
  // The span of a traced replay names the call that its answer comes from.
  void link_to_execution(const Record& record);
  const std::string& request_id() const;
  Reply pending_reply(std::string_view url, Millis age) const;
  Task<void> send_own(const Reply& reply);
  Task<void> send_compressible(BufferedBytes& buffered, const Reply& head, std::string_view body);
  Task<void> replay_if(Task<bool> allowed, BufferedBytes& buffered, const StoredResponse& response);
  Task<void> send_replay(BufferedBytes& buffered, const StoredResponse& response);
  Task<void> send_compressible_replay(BufferedBytes& buffered, const StoredResponse& response);

  GatewayThread& thread_;
  const Policy& policy_;
  const RouteMetrics& metrics_;
  Exchange* const client_;
  TraceNote* const trace_;
  std::optional<RecordId> id_;
  std::string key_;
  std::string as_sent_;
  mutable std::string request_id_; // made when it is first needed
  std::optional<Audited> audited_; // on routes with audit = "decisions" alone
};

// Before a replay, the upstream is asked whether the caller's credentials still hold: a replay never reaches the API
// that would refuse a revoked token. Whether the caller may still see a stored answer; always where the route does not
// ask (`reauthorize`). If not, the client has been told so. The replier has a client.
Task<bool> may_see_answer(GatewayThread& thread, const Route& route, Replier& replier);

} // namespace oncekey
