#include "store/common/guarded_store.h"

#include "base/crypto.h"
#include "core/transitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace oncekey {
namespace {

constexpr Millis kFirstPause{20};
constexpr Millis kLongestPause{1000};
// How often a server that did not answer is looked at.
constexpr Millis kFirstLook{100};
constexpr Millis kLongestLook{2000};
// A claim nobody knows the outcome of is looked for after its caller was told so: as long as its lease would last, but
// no shorter than a server takes to come back or to end what it was asked, and no longer than it can matter to a retry.
constexpr Millis kLookForClaimMin{15'000};
constexpr Millis kLookForClaimMax{60'000};

bool same_response(const StoredResponse& a, const StoredResponse& b) {
  const bool same_omitted =
      a.omitted.has_value() == b.omitted.has_value() &&
      (!a.omitted || (a.omitted->length == b.omitted->length && a.omitted->sha256 == b.omitted->sha256 &&
                      a.omitted->whole == b.omitted->whole));
  return a.status == b.status && a.reason == b.reason && a.headers.lines() == b.headers.lines() && a.body == b.body &&
         same_omitted && a.stream == b.stream;
}

// That a call could not even be made says nothing about one before it whose outcome is unknown.
bool worth_another_try(const Fault& fault) {
  return fault.kind == FaultKind::timeout || fault.kind == FaultKind::unavailable;
}

} // namespace

struct GuardedStore::ClaimCall {
  ClaimRequest request;
  Done<ClaimAnswer> done;
  Clock::time_point until;
  Backoff pauses{kFirstPause, kLongestPause};
  bool unknown = false; // an attempt may have happened
};

struct GuardedStore::FenceCall {
  Ownership owner;
  std::function<void(Done<FenceAnswer>)> send;
  // Whether a record with our fence is what this call would have made of it.
  std::function<bool(const std::optional<Found>&)> made_this;
  std::shared_ptr<const StoredResponse> response; // of a completion
  Done<FenceAnswer> done;
  Clock::time_point until;
  Backoff pauses{kFirstPause, kLongestPause};
  bool unknown = false;
};

GuardedStore::GuardedStore(std::unique_ptr<Store> server, GuardOptions options)
    : options_(options), process_(random_u64()), server_(std::move(server)) {}

GuardedStore::~GuardedStore() { later_.stop(); } // before the server goes that it would call

template <class T>
void GuardedStore::count(const Result<T>& result) {
  if (result.ok()) return breaker_.succeeded();
  if (!worth_another_try(result.fault())) return;
  if (breaker_.failed(result.fault())) {
    options_.log.warning("store_left_alone", {{"reason", result.fault().message}});
    look_whether_it_is_back(std::make_shared<Backoff>(kFirstLook, kLongestLook));
  }
}

void GuardedStore::look_whether_it_is_back(const std::shared_ptr<Backoff>& pauses) {
  later_.after(pauses->next(), [this, pauses] {
    if (!breaker_.is_open()) return; // an owner was faster
    server_->find(RecordId{}, Interest::none, [this, pauses](const Result<std::optional<Found>>& found) {
      if (!found) return look_whether_it_is_back(pauses);
      breaker_.succeeded();
      options_.log.info("store_is_back");
    });
  });
}

template <class T>
Done<T> GuardedStore::counted(Done<T> done) {
  return [this, done = std::move(done)](Result<T> result) {
    count(result);
    done(std::move(result));
  };
}

Status GuardedStore::healthy() const {
  if (Status server = server_->healthy(); !server) return server;
  if (std::optional<Fault> reason = breaker_.open_because()) return *std::move(reason);
  if (server_->durability() < options_.least_durability) {
    return unavailable(fmt::format("the store's durability is \"{}\" and \"{}\" is required: its settings have changed",
                                   to_string(server_->durability()), to_string(options_.least_durability)));
  }
  return ok_status();
}

Fault GuardedStore::left_alone() const {
  const std::optional<Fault> reason = breaker_.open_because();
  return unavailable("the store does not answer and is left alone for a moment: " +
                     (reason ? reason->message : std::string("it has just come back")));
}

Status GuardedStore::may_claim() {
  if (breaker_.is_open()) return left_alone();
  if (server_->durability() < options_.least_durability) return healthy();
  return ok_status();
}

void GuardedStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (const std::shared_ptr<const Record> cached = replays_.find(request.id)) {
    const Time now = server_->now();
    if (!cached->expired(now)) return done(ClaimAnswer(Found{cached, now}));
  }
  if (const Status may = may_claim(); !may) return done(may.fault());
  if (owners_here_ && owners_here_(request.id)) request.abandoned = Abandoned::leave;
  const std::uint64_t number = claims_.fetch_add(1, std::memory_order_relaxed);
  std::memcpy(request.token.data(), &process_, sizeof process_);
  std::memcpy(request.token.data() + sizeof process_, &number, sizeof number);
  auto call = std::make_shared<ClaimCall>();
  call->request = std::move(request);
  call->done = std::move(done);
  call->until = Clock::now() + options_.claim_patience;
  send(call);
}

void GuardedStore::send(const std::shared_ptr<ClaimCall>& call) {
  server_->claim(call->request, [this, call](Result<ClaimAnswer> answer) { claim_answered(call, std::move(answer)); });
}

void GuardedStore::claim_answered(const std::shared_ptr<ClaimCall>& call, Result<ClaimAnswer> answer) {
  count(answer);
  if (!answer) {
    if (answer.fault().kind == FaultKind::timeout) call->unknown = true;
    if (!call->unknown || !worth_another_try(answer.fault())) return call->done(std::move(answer));
    if (Clock::now() >= call->until) return give_up(call, answer.fault());
    return later_.after(call->pauses.next(), [this, call] { send(call); });
  }
  if (Found* const found = std::get_if<Found>(&*answer)) {
    const Record& record = *found->record;
    if (record.state == RecordState::in_progress && record.claimed_by == call->request.token) {
      // Whoever sees a lease that is over may have told an operator already that the outcome is unknown. (A job has no
      // owner yet, and nobody to tell.)
      if (!record.staged && record.lease_over(found->now)) {
        return give_up(call, {FaultKind::timeout, "the claim was confirmed when its lease was over"});
      }
      return call->done(ClaimAnswer(Claimed{record.fence, record.took_over, found->now}));
    }
    if (record.state == RecordState::completed) replays_.insert(call->request.id, record);
    if (works_here(owners_here_, call->request.id, record, found->now) == OwnerWorksHere::yes) {
      renew({call->request.id, record.fence}, call->request.lease, [](const Result<FenceAnswer>&) {});
      Record renewed = record;
      renewed.lease_until = found->now + call->request.lease;
      *found = Found{std::move(renewed), found->now};
    }
  } else if (!call->request.staged) {
    own_claims_.add(std::move(call->request), std::get<Claimed>(*answer));
  }
  call->done(std::move(answer));
}

void GuardedStore::give_up(const std::shared_ptr<ClaimCall>& call, const Fault& fault) {
  options_.log.warning("claim_unknown", {{"key", short_hash(call->request.id)}, {"reason", fault.message}});
  call->done(Fault{FaultKind::timeout, fault.message});
  // A job may be taken as soon as it is staged. Whoever staged it comes again, and finds it if it is there.
  if (call->request.staged) return;
  call->until = Clock::now() + std::clamp(call->request.lease, kLookForClaimMin, kLookForClaimMax);
  release_if_ours(call);
}

// Nothing was executed on the strength of this claim, so the key need not stay claimed until its lease is over, and
// need not be held for an operator after that. That it is not there yet says little: a server may still be at it, or
// wait to commit it.
void GuardedStore::release_if_ours(const std::shared_ptr<ClaimCall>& call) {
  if (Clock::now() >= call->until) return;
  later_.after(call->pauses.next(), [this, call] {
    server_->find(call->request.id, Interest::none, [this, call](Result<std::optional<Found>> found) {
      if (!found || !*found) return release_if_ours(call);
      const Record& record = *(*found)->record;
      if (record.state != RecordState::in_progress || record.claimed_by != call->request.token) return;
      server_->release({call->request.id, record.fence}, [this, call](const Result<FenceAnswer>& released) {
        if (!released) release_if_ours(call);
      });
    });
  });
}

void GuardedStore::find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) {
  if (const std::shared_ptr<const Record> cached = replays_.find(id)) {
    const Time now = server_->now();
    if (!cached->expired(now)) return done(std::optional<Found>(Found{cached, now}));
  }
  if (breaker_.is_open()) return done(left_alone());
  server_->find(id, interest, counted(std::move(done)));
}

void GuardedStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  server_->renew(owner, lease, counted<FenceAnswer>([this, owner, done = std::move(done)](Result<FenceAnswer> answer) {
                   if (answer && *answer == FenceAnswer::lost) own_claims_.forget(owner);
                   done(std::move(answer));
                 }));
}

void GuardedStore::complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
  auto call = std::make_shared<FenceCall>();
  const auto kept = std::make_shared<const StoredResponse>(std::move(response));
  call->owner = owner;
  call->response = kept;
  call->send = [this, owner, kept](Done<FenceAnswer> answered) {
    server_->complete(owner, *kept, std::move(answered));
  };
  call->made_this = [kept](const std::optional<Found>& found) {
    return found && found->record->state == RecordState::completed && same_response(*found->record->response, *kept);
  };
  call->done = std::move(done);
  call->until = Clock::now() + options_.complete_patience;
  send(call);
}

void GuardedStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  auto call = std::make_shared<FenceCall>();
  call->owner = owner;
  call->send = [this, owner](Done<FenceAnswer> answered) { server_->release(owner, std::move(answered)); };
  call->made_this = [](const std::optional<Found>& found) { return !found || found->record->abandoned(found->now); };
  call->done = std::move(done);
  call->until = Clock::now() + options_.release_patience;
  send(call);
}

void GuardedStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  if (by == Holder::finder && owners_here_ && owners_here_(owner.id) == owner.fence) return done(FenceAnswer::lost);
  auto call = std::make_shared<FenceCall>();
  call->owner = owner;
  call->send = [this, owner, by](Done<FenceAnswer> answered) { server_->hold(owner, by, std::move(answered)); };
  call->made_this = [](const std::optional<Found>& found) {
    return found && found->record->state == RecordState::indeterminate;
  };
  call->done = std::move(done);
  call->until = Clock::now() + options_.release_patience;
  send(call);
}

void GuardedStore::send(const std::shared_ptr<FenceCall>& call) {
  call->send([this, call](Result<FenceAnswer> answer) { fence_answered(call, std::move(answer)); });
}

void GuardedStore::fence_answered(const std::shared_ptr<FenceCall>& call, Result<FenceAnswer> answer) {
  count(answer);
  if (!answer) {
    if (answer.fault().kind == FaultKind::timeout) call->unknown = true;
    if (!worth_another_try(answer.fault()) || Clock::now() >= call->until) {
      if (call->unknown) answer = Fault{FaultKind::timeout, answer.fault().message};
      return finish(*call, std::move(answer));
    }
    return later_.after(call->pauses.next(), [this, call] { send(call); });
  }
  if (*answer == FenceAnswer::lost && call->unknown) return read_back(call);
  finish(*call, std::move(answer));
}

// The first retry may come at once, and should find the answer also when the store does not answer any more.
void GuardedStore::finish(const FenceCall& call, Result<FenceAnswer> answer) {
  std::optional<Record> record = own_claims_.take(call.owner);
  if (record && call.response && answer && *answer == FenceAnswer::done) {
    record->state = RecordState::completed;
    record->settled_at = server_->now();
    record->response = *call.response;
    replays_.insert(call.owner.id, *record);
  }
  call.done(std::move(answer));
}

// `lost` may mean that an attempt of ours came before: the record tells.
void GuardedStore::read_back(const std::shared_ptr<FenceCall>& call) {
  server_->find(call->owner.id, Interest::none, [this, call](Result<std::optional<Found>> found) {
    if (!found) return fence_answered(call, std::move(found).fault());
    const bool with_our_fence = !*found || (*found)->record->fence == call->owner.fence;
    finish(*call, with_our_fence && call->made_this(*found) ? FenceAnswer::done : FenceAnswer::lost);
  });
}

// One that stays unknown has leased some jobs to nobody; they are due again when the lease is over.
void GuardedStore::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  if (const Status may = may_claim(); !may) return done(may.fault());
  server_->take(request, counted(std::move(done)));
}

void GuardedStore::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  auto call = std::make_shared<FenceCall>();
  const auto kept = std::make_shared<const AttemptEnd>(std::move(end));
  call->owner = owner;
  call->send = [this, owner, kept](Done<FenceAnswer> answered) {
    server_->end_attempt(owner, *kept, std::move(answered));
  };
  call->made_this = [](const std::optional<Found>& found) {
    return found && (found->record->resting || found->record->state != RecordState::in_progress);
  };
  call->done = std::move(done);
  call->until = Clock::now() + options_.complete_patience;
  send(call);
}

void GuardedStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                           Done<OperatorAnswer> done) {
  server_->operate(id, action, std::move(response), counted(std::move(done)));
}

void GuardedStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  server_->list(request, counted(std::move(done)));
}

void GuardedStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  server_->browse(request, std::move(done)); // for people: says nothing of the calls that the breaker is about
}

void GuardedStore::count_waiting(Done<WaitingKeys> done) { server_->count_waiting(std::move(done)); }

} // namespace oncekey
