#include "store/common/guarded_store.h"

#include "base/crypto.h"
#include "core/transitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace oncekey {
namespace {

constexpr Millis kFirstPause{10};
constexpr Millis kLongestPause{1000};
// How often a server that did not answer is asked again.
constexpr Millis kFirstProbe{50};
constexpr Millis kLongestProbe{2000};
// A claim of unknown outcome is looked for after its caller was answered: as long as its lease would last, but
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

Fault left_alone(const Breaker& breaker) {
  const std::optional<Fault> reason = breaker.open_because();
  return unavailable("the store does not answer and is left alone for a moment: " +
                     (reason ? reason->message : std::string("it has just come back")));
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
  // Reads the record or the job: `done` if it has our fence and is what this call would have made of it.
  std::function<void(Done<FenceAnswer>)> read_back;
  std::shared_ptr<const StoredResponse> response; // of a completion
  Done<FenceAnswer> done;
  Clock::time_point until;
  Backoff pauses{kFirstPause, kLongestPause};
  bool unknown = false;
};

struct GuardedStore::StageCall {
  StageRequest request;
  Done<StageAnswer> done;
  Clock::time_point until;
  Backoff pauses{kFirstPause, kLongestPause};
  bool unknown = false;
};

GuardedStore::GuardedStore(std::unique_ptr<Store> server, GuardOptions options)
    : options_(options), process_(random_u64()), server_(std::move(server)) {}

GuardedStore::~GuardedStore() { later_.stop(); } // before the server goes that it would call

template <class T>
void GuardedStore::count(const RecordId& id, const Result<T>& result) {
  Breaker& breaker = breaker_of(id);
  if (result.ok()) return breaker.succeeded();
  if (!worth_another_try(result.fault())) return;
  if (breaker.failed(result.fault())) {
    options_.log.warning("store_left_alone", {{"reason", result.fault().message}});
    probe(breaker, std::make_shared<Backoff>(kFirstProbe, kLongestProbe));
  }
}

// No record has it: a record that cannot be read would say nothing of its server. Which id it is differs from call to
// call, since a server may answer for some of its partitions alone. Nothing if the server has no partition any more.
std::optional<RecordId> GuardedStore::absent_id(const Breaker& breaker) {
  const std::uint64_t start = random_u64();
  for (std::uint64_t number = start; number < start + 0x10000; ++number) {
    RecordId id;
    id.bytes[0] = static_cast<std::uint8_t>(number >> 8);
    id.bytes[1] = static_cast<std::uint8_t>(number);
    if (&breaker_of(id) == &breaker) return id;
  }
  return std::nullopt;
}

void GuardedStore::probe(Breaker& breaker, const std::shared_ptr<Backoff>& pauses) {
  later_.after(pauses->next(), [this, &breaker, pauses] {
    if (!breaker.is_open()) return; // an owner's call was answered before
    const auto answered = [this, &breaker, pauses](const Result<std::optional<Found>>& found) {
      if (!found && worth_another_try(found.fault())) return probe(breaker, pauses);
      breaker.succeeded();
      options_.log.info("store_is_back");
    };
    const std::optional<RecordId> id = absent_id(breaker);
    if (!id) return answered(std::optional<Found>{});
    server_->find(*id, Interest::none, answered);
  });
}

template <class T>
Done<T> GuardedStore::counted(const RecordId& id, Done<T> done) {
  return [this, id, done = std::move(done)](Result<T> result) {
    count(id, result);
    done(std::move(result));
  };
}

Status GuardedStore::healthy() const {
  if (Status server = server_->healthy(); !server) return server;
  std::size_t open = 0;
  for (const Breaker& breaker : breakers_) {
    std::optional<Fault> reason = breaker.open_because();
    if (reason && ++open >= server_->servers()) return *std::move(reason);
  }
  return durable_enough();
}

Status GuardedStore::durable_enough() const {
  if (server_->durability() < options_.least_durability) {
    return unavailable(fmt::format("the store's durability is \"{}\" and \"{}\" is required: its settings have changed",
                                   to_string(server_->durability()), to_string(options_.least_durability)));
  }
  return ok_status();
}

void GuardedStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (const std::shared_ptr<const Record> cached = replays_.find(request.id)) {
    const Time now = server_->now();
    if (!cached->expired(now)) return done(ClaimAnswer(Found{cached, now}));
  }
  if (const Breaker& breaker = breaker_of(request.id); breaker.is_open()) return done(left_alone(breaker));
  if (const Status durable = durable_enough(); !durable) return done(durable.fault());
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
  count(call->request.id, answer);
  if (!answer) {
    if (answer.fault().kind == FaultKind::timeout) call->unknown = true;
    if (!call->unknown || !worth_another_try(answer.fault())) return call->done(std::move(answer));
    if (Clock::now() >= call->until) return give_up(call, answer.fault());
    return later_.after(call->pauses.next(), [this, call] { send(call); });
  }
  if (Found* const found = std::get_if<Found>(&*answer)) {
    const Record& record = *found->record;
    if (record.state == RecordState::in_progress && record.claimed_by == call->request.token) {
      // The lease is over: an operator may have been told already that the outcome is unknown.
      if (record.lease_over(found->now)) {
        return give_up(call, {FaultKind::timeout, "the claim was confirmed when its lease was over"});
      }
      // Reading it is no proof that it survives a failover: its commit may have been given up while it waited for a
      // standby. A renewal is a write, and its commit waits again.
      const Claimed claimed{record.fence, record.took_over, found->now, record.claimed_by};
      return server_->renew({call->request.id, claimed.fence, claimed.token}, call->request.lease,
                            [this, call, claimed](const Result<FenceAnswer>& renewed) {
                              if (!renewed) return claim_answered(call, renewed.fault());
                              if (*renewed == FenceAnswer::done) return call->done(ClaimAnswer(claimed));
                              give_up(call, {FaultKind::timeout, "the claim was lost before it was confirmed"});
                            });
    }
    if (record.state == RecordState::completed) replays_.insert(call->request.id, record);
    if (works_here(owners_here_, call->request.id, record, found->now) == OwnerWorksHere::yes) {
      renew({call->request.id, record.fence, record.claimed_by}, call->request.lease,
            [](const Result<FenceAnswer>&) {});
      Record renewed = record;
      renewed.lease_until = found->now + call->request.lease;
      *found = Found{std::move(renewed), found->now};
    }
  } else {
    Claimed& claimed = std::get<Claimed>(*answer);
    claimed.token = call->request.token;
    own_claims_.add(std::move(call->request), claimed);
  }
  call->done(std::move(answer));
}

void GuardedStore::give_up(const std::shared_ptr<ClaimCall>& call, const Fault& fault) {
  options_.log.warning("claim_unknown", {{"key", short_hash(call->request.id)}, {"reason", fault.message}});
  call->done(Fault{FaultKind::timeout, fault.message});
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
      server_->release({call->request.id, record.fence, record.claimed_by},
                       [this, call](const Result<FenceAnswer>& released) {
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
  if (const Breaker& breaker = breaker_of(id); breaker.is_open()) return done(left_alone(breaker));
  server_->find(id, interest, counted(id, std::move(done)));
}

void GuardedStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  server_->renew(owner, lease,
                 counted<FenceAnswer>(owner.id, [this, owner, done = std::move(done)](Result<FenceAnswer> answer) {
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
  call->read_back = read_record(owner, [kept](const std::optional<Found>& found) {
    return found && found->record->state == RecordState::completed && same_response(*found->record->response, *kept);
  });
  call->done = std::move(done);
  call->until = Clock::now() + options_.complete_patience;
  send(call);
}

void GuardedStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  auto call = std::make_shared<FenceCall>();
  call->owner = owner;
  call->send = [this, owner](Done<FenceAnswer> answered) { server_->release(owner, std::move(answered)); };
  call->read_back = read_record(
      owner, [](const std::optional<Found>& found) { return !found || found->record->abandoned(found->now); });
  call->done = std::move(done);
  call->until = Clock::now() + options_.release_patience;
  send(call);
}

void GuardedStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  if (by == Holder::finder && owners_here_ && owners_here_(owner.id) == owner.fence) return done(FenceAnswer::lost);
  auto call = std::make_shared<FenceCall>();
  call->owner = owner;
  call->send = [this, owner, by](Done<FenceAnswer> answered) { server_->hold(owner, by, std::move(answered)); };
  call->read_back = read_record(owner, [](const std::optional<Found>& found) {
    return found && found->record->state == RecordState::indeterminate;
  });
  call->done = std::move(done);
  call->until = Clock::now() + options_.release_patience;
  send(call);
}

void GuardedStore::send(const std::shared_ptr<FenceCall>& call) {
  call->send([this, call](Result<FenceAnswer> answer) { fence_answered(call, std::move(answer)); });
}

void GuardedStore::fence_answered(const std::shared_ptr<FenceCall>& call, Result<FenceAnswer> answer) {
  count(call->owner.id, answer);
  if (!answer) {
    if (answer.fault().kind == FaultKind::timeout) call->unknown = true;
    if (!worth_another_try(answer.fault()) || Clock::now() >= call->until) {
      if (call->unknown) answer = Fault{FaultKind::timeout, answer.fault().message};
      return finish(*call, std::move(answer));
    }
    return later_.after(call->pauses.next(), [this, call] { send(call); });
  }
  if (*answer == FenceAnswer::lost && call->unknown) {
    return call->read_back([this, call](Result<FenceAnswer> read) {
      if (!read) return fence_answered(call, std::move(read));
      finish(*call, std::move(read));
    });
  }
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
std::function<void(Done<FenceAnswer>)> GuardedStore::read_record(
    const Ownership& owner, std::function<bool(const std::optional<Found>&)> made_this) {
  return [this, owner, made_this = std::move(made_this)](Done<FenceAnswer> done) {
    server_->find(owner.id, Interest::none, [owner, made_this, done](const Result<std::optional<Found>>& found) {
      if (!found) return done(found.fault());
      const bool ours = !*found || owned_by(*(*found)->record, owner);
      done(ours && made_this(*found) ? FenceAnswer::done : FenceAnswer::lost);
    });
  };
}

void GuardedStore::Jobs::stage(StageRequest request, Done<StageAnswer> done) {
  if (const Breaker& breaker = store_.breaker_of(request.id); breaker.is_open()) return done(left_alone(breaker));
  if (const Status durable = store_.durable_enough(); !durable) return done(durable.fault());
  auto call = std::make_shared<StageCall>();
  call->request = std::move(request);
  call->done = std::move(done);
  call->until = Clock::now() + store_.options_.claim_patience;
  store_.send(call);
}

// An attempt of unknown outcome needs no more than another one: the id is known if it was made. A job that stays
// unknown may be delivered; its sender tries again and finds it.
void GuardedStore::send(const std::shared_ptr<StageCall>& call) {
  server_->jobs().stage(call->request, [this, call](Result<StageAnswer> answer) {
    count(call->request.id, answer);
    if (answer) {
      if (call->unknown) answer->staged = true;
      return call->done(std::move(answer));
    }
    if (answer.fault().kind == FaultKind::timeout) call->unknown = true;
    if (!call->unknown || !worth_another_try(answer.fault())) return call->done(std::move(answer));
    if (Clock::now() >= call->until) return call->done(Fault{FaultKind::timeout, answer.fault().message});
    later_.after(call->pauses.next(), [this, call] { send(call); });
  });
}

// A take of unknown outcome has leased jobs without an owner; they are due again when the lease is over. No breaker:
// jobs come from all servers, and no client waits for them.
void GuardedStore::Jobs::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  if (const Status durable = store_.durable_enough(); !durable) return done(durable.fault());
  store_.server_->jobs().take(request, std::move(done));
}

void GuardedStore::Jobs::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  auto call = std::make_shared<FenceCall>();
  const auto kept = std::make_shared<const AttemptEnd>(std::move(end));
  JobStore& jobs = store_.server_->jobs();
  call->owner = owner;
  call->send = [&jobs, owner, kept](Done<FenceAnswer> answered) {
    jobs.end_attempt(owner, *kept, std::move(answered));
  };
  call->read_back = [&jobs, owner](Done<FenceAnswer> answered) {
    jobs.find(owner.id, [owner, answered](const Result<std::optional<FoundJob>>& found) {
      if (!found) return answered(found.fault());
      const bool ended = *found && (*found)->job.fence == owner.fence && (*found)->job.state != JobState::taken;
      answered(ended ? FenceAnswer::done : FenceAnswer::lost);
    });
  };
  call->done = std::move(done);
  call->until = Clock::now() + store_.options_.complete_patience;
  store_.send(call);
}

void GuardedStore::Jobs::find(const RecordId& id, Done<std::optional<FoundJob>> done) {
  if (const Breaker& breaker = store_.breaker_of(id); breaker.is_open()) return done(left_alone(breaker));
  store_.server_->jobs().find(id, store_.counted(id, std::move(done)));
}

void GuardedStore::Jobs::operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) {
  store_.server_->jobs().operate(id, route, action, store_.counted(id, std::move(done)));
}

void GuardedStore::Jobs::list(const JobListRequest& request, Done<JobPage> done) {
  store_.server_->jobs().list(request, std::move(done));
}

void GuardedStore::Jobs::count(Done<std::vector<JobCount>> done) { store_.server_->jobs().count(std::move(done)); }

void GuardedStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                           Done<OperatorAnswer> done) {
  server_->operate(id, action, std::move(response), counted(id, std::move(done)));
}

// Listings are for people, and say nothing of the calls that the breakers are about.
void GuardedStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  server_->list(request, std::move(done));
}

void GuardedStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  server_->browse(request, std::move(done));
}

void GuardedStore::count_waiting(Done<WaitingKeys> done) { server_->count_waiting(std::move(done)); }

} // namespace oncekey
