// execution: the owner's side of a request: forward → settle → record → reply.
//
// The upstream is called once. What came of it is durable before the client hears of it.
#pragma once

#include "core/decide.h"
#include "core/replies.h"
#include "core/trace.h"
#include "gateway/admission.h"
#include "gateway/new_work.h"
#include "gateway/owned_key.h"
#include "gateway/replier.h"

namespace oncekey {

// What came of a call to the upstream.
struct WholeAnswer {
  CallError error = CallError::none;
  bool sent = false; // the request
  std::string why;   // it failed, for the log
  // Of a whole answer, and of one that is `longer`. Of an unusable one the status alone, 0 if it has none.
  int status = 0;
  std::string reason;
  Headers headers; // end-to-end fields
  std::string body;
  bool longer = false;                 // than is kept: `body` is its beginning, and the call has the rest
  std::optional<std::uint64_t> length; // as announced
};

class Execution {
 public:
  // All of them must outlive this. `buffered` counts the bodies of both directions.
  Execution(GatewayThread& thread, const KeyedRequest& request, const Claimed& claimed, Replier& replier,
            const Sharer& sharer, BufferedBytes& buffered, NewWork& work);

  enum class End {
    answered, // the client has its answer
    lost,     // the lease was taken over meanwhile: the answer must come from the record
  };
  // `verdict` is execute or probe.
  Task<End> run(MonotonicTime before_claim, Verdict verdict);

 private:
  // What goes to the upstream, and the question of a probe.
  UpstreamRequest forwarded() const;
  UpstreamRequest question() const;
  // One call, from the request's first byte to the answer's last. An answer that is too long to keep is left on the
  // call, for relay_long_answer().
  Task<void> call_upstream(const UpstreamRequest& request, MonotonicTime start);
  // Appends a piece to the answer's body. False if the body is not to be kept from here on; the piece is appended all
  // the same. `expected` is how long the body will become, as far as that is known.
  bool take(std::string_view piece, std::uint64_t expected);
  void note_duration(MonotonicTime start);
  // The span of the call, where the request is traced.
  SpanId call_span() const;
  StoredResponse take_response();
  // How the probe settled it; nothing if it was not executed, so that it is now.
  Task<std::optional<End>> probe();
  // Ends the ownership without an answer, and says so in the audit log.
  Task<void> let_go(Settlement how);
  Task<End> settle_and_answer();
  Task<End> keep_and_answer(Conclusion conclusion);
  Task<End> let_go_and_answer(Conclusion conclusion);
  Task<End> settle_failure();
  Task<End> note_executed();
  Task<End> stream_long_answer();
  // Passes the answer on as it comes; `omitted` learns its length and hash.
  Task<CallError> relay_long_answer(const Reply& head, std::string_view beginning, OmittedBody& omitted);
  Task<End> not_written(const Result<FenceAnswer>& written);
  Task<void> refuse_unusable(Fate fate);

  GatewayThread& thread_;
  GatewayShared& shared_;
  const KeyedRequest& request_;
  const Policy& policy_;
  Upstream& upstream_;
  Replier& replier_;
  const Sharer& sharer_;
  BufferedBytes& buffered_;
  NewWork& work_;
  const Counted executing_;
  OwnedKey key_;
  const bool took_over_; // an abandoned claim, so that an earlier owner may have executed
  bool probing_ = false;
  std::optional<UpstreamCall> call_;
  WholeAnswer answer_;
};

// A call as settle() sees it. `status` and `headers` are those of a whole answer.
Outcome outcome_of(CallError error, int status, const Headers& headers);

} // namespace oncekey
