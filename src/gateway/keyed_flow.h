// keyed_flow: an admitted request from its claim to its answer: claim → decide, then execute, replay, wait or refuse.
//
// Waiting and lost races lead back to the claim. Everything else ends in an answer.
#pragma once

#include "core/decide.h"
#include "gateway/execution.h"
#include "gateway/pass_through.h"

namespace oncekey {

class KeyedFlow {
 public:
  KeyedFlow(GatewayThread& thread, PassThrough& pass_through, Admission& admission, Replier& replier);

  Task<void> run();

 private:
  // Why nothing new may begin; nothing if it may, and then `work_` holds what that takes.
  std::optional<Refusal> begin_work(MonotonicTime now);
  Task<Result<ClaimAnswer>> find();
  // A fault in place of a record that cannot be read.
  void check_claim(Result<ClaimAnswer>& answer);
  void count_retry(const Found& found, Verdict verdict, MonotonicTime now);
  void begin_execution(const Claimed& claimed, Verdict verdict);
  Task<void> execute_later(const Claimed& claimed, MonotonicTime before_claim, Verdict verdict);
  // The next two lead back to the claim, unless they have answered.
  enum class Next { claim, nothing };
  Task<Next> hold(const Record& abandoned);
  Task<Next> wait(const Decision& decision, const Record& record);
  Task<bool> still_in_progress();
  // The record decides, and nothing is executed on behalf of this request any more.
  Task<void> answer_from_record();
  Task<void> refuse_new_work(Refusal refusal, const Found& found);
  // Once a record is known to exist, executing past the store would be executing twice.
  Task<void> answer_store_fault(const Fault& fault);
  std::string status_url_of_request() const;

  GatewayThread& thread_;
  GatewayShared& shared_;
  PassThrough& pass_through_;
  const Sharer& sharer_;
  BufferedBytes& buffered_;
  Limited& limited_;
  Replier& replier_;
  KeyedRequest request_;
  const RecordId id_;
  const Policy& policy_;
  NewWork work_;
  std::optional<Execution> execution_;
  const MonotonicTime start_ = std::chrono::steady_clock::now();
  std::unique_ptr<Waiters::Ticket> ticket_;
  Holding waiting_;
  bool known_ = false; // the store has said something about this key
  bool retry_counted_ = false;
};

// For a record that was only read: if its owner is a live call of this process, its lease counts as renewed.
void trust_owner_here(const GatewayShared& shared, const RecordId& id, Found& found, Millis lease);
// A fault if the record's answer is encrypted: this gateway has no keys to read it with.
Status readable(const Record& record);

// mode = "observe": a request that was admitted under a key is forwarded, and what enforcement would have done is only
// counted.
Task<void> observe(GatewayThread& thread, PassThrough& pass_through, Admission& admission, Replier& replier);

// The URL under which an operation's answer is fetched whose client was told to come back for it.
Task<void> answer_status(GatewayThread& thread, Exchange& exchange);

} // namespace oncekey
