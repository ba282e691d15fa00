#include "store/common/guarded_store.h"

#include "base/backoff.h"
#include "base/crypto.h"
#include "core/job_store.h"
#include "core/transitions.h"
#include "store/common/breaker.h"
#include "store/common/later.h"
#include "store/common/own_claims.h"
#include "store/common/replay_cache.h"

#include <fmt/format.h>

#include <cstring>

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

bool same_sealed(const std::shared_ptr<const Sealed>& a, const std::shared_ptr<const Sealed>& b) {
  if (!a || !b) return a == b;
  return a->key_id == b->key_id && a->fence == b->fence && a->nonce == b->nonce && a->bytes == b->bytes;
}

bool same_response(const StoredResponse& a, const StoredResponse& b) {
  const bool same_omitted =
      a.omitted.has_value() == b.omitted.has_value() &&
      (!a.omitted || (a.omitted->length == b.omitted->length && a.omitted->sha256 == b.omitted->sha256 &&
                      a.omitted->whole == b.omitted->whole));
  return a.status == b.status && a.reason == b.reason && a.headers.lines() == b.headers.lines() && a.body == b.body &&
         same_omitted && a.stream == b.stream && same_sealed(a.sealed, b.sealed);
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

class GuardedStore final : public Store {
 public:
  GuardedStore(std::unique_ptr<Store> server, GuardOptions options)
      : options_(options), process_(random_u64()), server_(std::move(server)) {}
  ~GuardedStore() override { later_.stop(); } // before the server goes that it would call

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    if (std::optional<Found> replay = replay_of(request.id)) return done(ClaimAnswer(*std::move(replay)));
    if (const Breaker& breaker = breaker_of(request.id); breaker.is_open()) return done(left_alone(breaker));
    if (const Status durable = durable_enough(); !durable) return done(durable.fault());
    if (owners_here_ && owners_here_(request.id)) request.abandoned = Abandoned::leave;
    const std::uint64_t number = claims_.fetch_add(1, std::memory_order_relaxed);
    std::memcpy(request.token.data(), &process_, sizeof process_);
    std::memcpy(request.token.data() + sizeof process_, &number, sizeof number);
    send<ClaimAnswer>(std::make_shared<RepeatedClaim>(*this, std::move(request), std::move(done)));
  }

  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override {
    if (std::optional<Found> replay = replay_of(id)) return done(std::move(replay));
    if (const Breaker& breaker = breaker_of(id); breaker.is_open()) return done(left_alone(breaker));
    server_->find(id, interest, counted(id, std::move(done)));
  }

  void by_fence(FenceCall call) override {
    if (is_kept_from(call, owners_here_)) return call.done(FenceAnswer::lost);
    if (call.verb != FenceVerb::renew) {
      const bool completes = call.verb == FenceVerb::complete;
      const Millis patience = completes ? options_.complete_patience : options_.release_patience;
      return send<FenceAnswer>(std::make_shared<RepeatedFence>(*this, std::move(call), patience));
    }
    call.done = counted<FenceAnswer>(
        call.owner.id, [this, owner = call.owner, done = std::move(call.done)](Result<FenceAnswer> answer) {
          if (answer && *answer == FenceAnswer::lost) own_claims_.forget(owner);
          done(std::move(answer));
        });
    server_->by_fence(std::move(call));
  }

  JobStore& jobs() override { return jobs_; }
  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override {
    server_->operate(id, action, std::move(response), counted(id, std::move(done)));
  }
  // Listings are for people, and say nothing of the calls that the breakers are about.
  void list(const ListRequest& request, Done<std::vector<Listed>> done) override {
    server_->list(request, std::move(done));
  }
  void browse(const BrowseRequest& request, Done<BrowsePage> done) override {
    server_->browse(request, std::move(done));
  }
  void count_waiting(Done<WaitingKeys> done) override { server_->count_waiting(std::move(done)); }
  void beat(GatewayBeat mine, Done<std::vector<GatewayBeat>> done) override {
    server_->beat(std::move(mine), std::move(done));
  }
  void announce_to(Listener listener) override { server_->announce_to(std::move(listener)); }
  void owners_here(OwnersHere owners) override { owners_here_ = std::move(owners); }
  void write_from(Loop* loop) override { server_->write_from(loop); }
  Time now() const override { return server_->now(); }
  const std::array<std::uint8_t, 32>& secret() const override { return server_->secret(); }
  Durability durability() const override { return server_->durability(); }
  Status healthy() const override {
    if (Status server = server_->healthy(); !server) return server;
    std::size_t open = 0;
    for (const Breaker& breaker : breakers_) {
      std::optional<Fault> reason = breaker.open_because();
      if (reason && ++open >= server_->servers()) return *std::move(reason);
    }
    return durable_enough();
  }
  StoreStats stats() const override { return server_->stats(); }
  RateKeeper* rates() override { return server_->rates(); }

 private:
  using Clock = std::chrono::steady_clock;

  // A call that is sent again while its outcome is unknown.
  template <class T>
  struct Repeated {
    Repeated(GuardedStore& store, const RecordId& record, Done<T> caller, Millis patience)
        : guard(store), id(record), done(std::move(caller)), until(Clock::now() + patience) {}
    virtual ~Repeated() = default;
    virtual void send(Done<T> answered) = 0;
    // With the server's answer, or its last fault. One of kind `timeout` means that the outcome stays unknown.
    virtual void end(Result<T> answer) = 0;
    // An owner's: sent again also if no attempt was made so far.
    virtual bool ends_work() const { return false; }

    GuardedStore& guard;
    const RecordId id;
    const Done<T> done;
    Clock::time_point until;
    Backoff pauses{kFirstPause, kLongestPause};
    bool unknown = false; // an attempt may have happened
  };

  struct RepeatedClaim final : Repeated<ClaimAnswer>, std::enable_shared_from_this<RepeatedClaim> {
    RepeatedClaim(GuardedStore& store, ClaimRequest wanted, Done<ClaimAnswer> caller)
        : Repeated(store, wanted.id, std::move(caller), store.options_.claim_patience), request(std::move(wanted)) {}
    void send(Done<ClaimAnswer> answered) override { guard.server_->claim(request, std::move(answered)); }

    void end(Result<ClaimAnswer> answer) override {
      if (!answer) return answer.fault().kind == FaultKind::timeout ? give_up(answer.fault()) : done(std::move(answer));
      if (Found* const found = std::get_if<Found>(&*answer)) {
        const Record& record = *found->record;
        if (record.state == RecordState::in_progress && record.claimed_by == request.token) {
          // The lease is over: an operator may have been told already that the outcome is unknown.
          if (record.lease_over(found->now)) {
            return give_up({FaultKind::timeout, "the claim was confirmed when its lease was over"});
          }
          // Reading it is no proof that it survives a failover: its commit may have been given up while it waited for a
          // standby. A renewal is a write, and its commit waits again.
          const Claimed claimed{record.fence, record.took_over, found->now, record.claimed_by};
          const auto renewed = [call = shared_from_this(), claimed](const Result<FenceAnswer>& answered) {
            if (!answered) return call->guard.answered<ClaimAnswer>(call, answered.fault());
            if (*answered == FenceAnswer::done) return call->done(ClaimAnswer(claimed));
            call->give_up({FaultKind::timeout, "the claim was lost before it was confirmed"});
          };
          return guard.server_->renew({id, claimed.fence, claimed.token}, request.lease, renewed);
        }
        if (record.state == RecordState::completed) guard.replays_.insert(id, record);
        if (works_here(guard.owners_here_, id, record, found->now) == OwnerWorksHere::yes) {
          guard.renew({id, record.fence, record.claimed_by}, request.lease, [](const Result<FenceAnswer>&) {});
          Record renewed = record;
          renewed.lease_until = found->now + request.lease;
          *found = Found{std::move(renewed), found->now};
        }
      } else {
        Claimed& claimed = std::get<Claimed>(*answer);
        claimed.token = request.token;
        guard.own_claims_.add(std::move(request), claimed);
      }
      done(std::move(answer));
    }

    void give_up(const Fault& fault) {
      guard.options_.log.warning("claim_unknown", {{"key", short_hash(id)}, {"reason", fault.message}});
      done(Fault{FaultKind::timeout, fault.message});
      until = Clock::now() + std::clamp(request.lease, kLookForClaimMin, kLookForClaimMax);
      release_if_ours();
    }

    // Nothing was executed on the strength of this claim, so the key need not stay claimed until its lease is over, and
    // need not be held for an operator after that. That it is not there yet says little: a server may still be at it,
    // or wait to commit it.
    void release_if_ours() {
      if (Clock::now() >= until) return;
      guard.later_.after(pauses.next(), [call = shared_from_this()] {
        Store& server = *call->guard.server_;
        server.find(call->id, Interest::none, [&server, call](Result<std::optional<Found>> found) {
          if (!found || !*found) return call->release_if_ours();
          const Record& record = *(*found)->record;
          if (record.state != RecordState::in_progress || record.claimed_by != call->request.token) return;
          server.release({call->id, record.fence, record.claimed_by}, [call](const Result<FenceAnswer>& released) {
            if (!released) call->release_if_ours();
          });
        });
      });
    }

    ClaimRequest request;
  };

  struct RepeatedEnding : Repeated<FenceAnswer>, std::enable_shared_from_this<RepeatedEnding> {
    using Repeated::Repeated;
    bool ends_work() const override { return true; }
    // Reads the record or the job: `done` if it has our fence and is what this call would have made of it.
    virtual void read_back(Done<FenceAnswer> answered) = 0;
    virtual void finish(Result<FenceAnswer> answer) { done(std::move(answer)); }

    void end(Result<FenceAnswer> answer) override {
      // `lost` may mean that an attempt of ours came before: the record tells.
      if (!answer || *answer == FenceAnswer::done || !unknown) return finish(std::move(answer));
      read_back([call = shared_from_this()](Result<FenceAnswer> read) {
        if (read) return call->finish(std::move(read));
        call->guard.answered<FenceAnswer>(call, std::move(read));
      });
    }
  };

  struct RepeatedFence final : RepeatedEnding {
    RepeatedFence(GuardedStore& store, FenceCall wanted, Millis patience)
        : RepeatedEnding(store, wanted.owner.id, std::move(wanted.done), patience), call(std::move(wanted)) {}
    void send(Done<FenceAnswer> answered) override {
      guard.server_->by_fence({call.verb, call.owner, call.lease, call.response, std::move(answered)});
    }
    void read_back(Done<FenceAnswer> answered) override {
      const auto read = [this, self = shared_from_this(), answered](const Result<std::optional<Found>>& found) {
        if (!found) return answered(found.fault());
        const bool ours = !*found || owned_by(*(*found)->record, call.owner);
        answered(ours && made_this(*found) ? FenceAnswer::done : FenceAnswer::lost);
      };
      guard.server_->find(id, Interest::none, read);
    }

    bool made_this(const std::optional<Found>& found) const {
      if (call.verb == FenceVerb::release) return !found || found->record->abandoned(found->now);
      if (!found) return false;
      if (call.verb != FenceVerb::complete) return found->record->state == RecordState::indeterminate;
      return found->record->state == RecordState::completed && same_response(*found->record->response, call.response);
    }

    // The first retry may come at once, and should find the answer also when the store does not answer any more.
    void finish(Result<FenceAnswer> answer) override {
      std::optional<Record> record = guard.own_claims_.take(call.owner);
      if (record && call.verb == FenceVerb::complete && answer && *answer == FenceAnswer::done) {
        record->state = RecordState::completed;
        record->settled_at = guard.server_->now();
        record->response = std::move(call.response);
        guard.replays_.insert(id, *std::move(record));
      }
      done(std::move(answer));
    }

    FenceCall call;
  };

  struct RepeatedAttemptEnd final : RepeatedEnding {
    RepeatedAttemptEnd(GuardedStore& store, const Ownership& courier, AttemptEnd ended, Done<FenceAnswer> caller)
        : RepeatedEnding(store, courier.id, std::move(caller), store.options_.complete_patience),
          owner(courier),
          attempt(std::move(ended)) {}
    void send(Done<FenceAnswer> answered) override {
      guard.server_->jobs().end_attempt(owner, attempt, std::move(answered));
    }
    void read_back(Done<FenceAnswer> answered) override {
      guard.server_->jobs().find(id, [fence = owner.fence, answered](const Result<std::optional<FoundJob>>& found) {
        if (!found) return answered(found.fault());
        const bool ended = *found && (*found)->job.fence == fence && (*found)->job.state != JobState::taken;
        answered(ended ? FenceAnswer::done : FenceAnswer::lost);
      });
    }

    const Ownership owner;
    const AttemptEnd attempt;
  };

  // An attempt of unknown outcome needs no more than another one: the id is known if it was made. A job that stays
  // unknown may be delivered; its sender tries again and finds it.
  struct RepeatedStage final : Repeated<StageAnswer> {
    RepeatedStage(GuardedStore& store, StageRequest wanted, Done<StageAnswer> caller)
        : Repeated(store, wanted.id, std::move(caller), store.options_.claim_patience), request(std::move(wanted)) {}
    void send(Done<StageAnswer> answered) override { guard.server_->jobs().stage(request, std::move(answered)); }
    void end(Result<StageAnswer> answer) override {
      if (answer && unknown) answer->staged = true;
      done(std::move(answer));
    }

    const StageRequest request;
  };

  // The jobs of the store.
  class Jobs final : public JobStore {
   public:
    explicit Jobs(GuardedStore& store) : store_(store) {}

    void stage(StageRequest request, Done<StageAnswer> done) override {
      if (const Breaker& breaker = store_.breaker_of(request.id); breaker.is_open()) return done(left_alone(breaker));
      if (const Status durable = store_.durable_enough(); !durable) return done(durable.fault());
      store_.send<StageAnswer>(std::make_shared<RepeatedStage>(store_, std::move(request), std::move(done)));
    }

    // A take of unknown outcome has leased jobs without an owner; they are due again when the lease is over. No
    // breaker: jobs come from all servers, and no client waits for them.
    void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override {
      if (const Status durable = store_.durable_enough(); !durable) return done(durable.fault());
      store_.server_->jobs().take(request, std::move(done));
    }

    void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override {
      store_.send<FenceAnswer>(std::make_shared<RepeatedAttemptEnd>(store_, owner, std::move(end), std::move(done)));
    }

    void find(const RecordId& id, Done<std::optional<FoundJob>> done) override {
      if (const Breaker& breaker = store_.breaker_of(id); breaker.is_open()) return done(left_alone(breaker));
      store_.server_->jobs().find(id, store_.counted(id, std::move(done)));
    }

    void operate(const RecordId& id, const std::string& route, JobAction action, std::optional<JobSeen> seen,
                 Done<JobAnswer> done) override {
      store_.server_->jobs().operate(id, route, action, seen, store_.counted(id, std::move(done)));
    }

    void list(const JobListRequest& request, Done<JobPage> done) override {
      store_.server_->jobs().list(request, std::move(done));
    }
    void count(Done<std::vector<JobCount>> done) override { store_.server_->jobs().count(std::move(done)); }

   private:
    GuardedStore& store_;
  };

  template <class T>
  void send(const std::shared_ptr<Repeated<T>>& call) {
    call->send([this, call](Result<T> answer) { answered(call, std::move(answer)); });
  }

  template <class T>
  void answered(const std::shared_ptr<Repeated<T>>& call, Result<T> answer) {
    count(call->id, answer);
    if (answer) return call->end(std::move(answer));
    if (answer.fault().kind == FaultKind::timeout) call->unknown = true;
    const bool again = worth_another_try(answer.fault()) && (call->unknown || call->ends_work());
    if (again && Clock::now() < call->until) {
      return later_.after(call->pauses.next(), [this, call] { send(call); });
    }
    if (call->unknown && (again || call->ends_work())) answer = Fault{FaultKind::timeout, answer.fault().message};
    call->end(std::move(answer));
  }

  Breaker& breaker_of(const RecordId& id) { return breakers_[server_->server_of(id) % breakers_.size()]; }

  template <class T>
  void count(const RecordId& id, const Result<T>& result) {
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
  std::optional<RecordId> absent_id(const Breaker& breaker) {
    const std::uint64_t start = random_u64();
    for (std::uint64_t number = start; number < start + 0x10000; ++number) {
      RecordId id;
      id.bytes[0] = static_cast<std::uint8_t>(number >> 8);
      id.bytes[1] = static_cast<std::uint8_t>(number);
      if (&breaker_of(id) == &breaker) return id;
    }
    return std::nullopt;
  }

  // Asks the server of this breaker for an id of its own until it answers.
  void probe(Breaker& breaker, const std::shared_ptr<Backoff>& pauses) {
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

  // The result as it is, counted by the breaker of the record's server.
  template <class T>
  Done<T> counted(const RecordId& id, Done<T> done) {
    return [this, id, done = std::move(done)](Result<T> result) {
      count(id, result);
      done(std::move(result));
    };
  }

  Status durable_enough() const {
    if (server_->durability() < options_.least_durability) {
      return unavailable(
          fmt::format("the store's durability is \"{}\" and \"{}\" is required: its settings have changed",
                      to_string(server_->durability()), to_string(options_.least_durability)));
    }
    return ok_status();
  }

  // A completed record that was seen lately and has not expired.
  std::optional<Found> replay_of(const RecordId& id) {
    const std::shared_ptr<const Record> cached = replays_.find(id);
    if (cached == nullptr) return std::nullopt;
    const Time now = server_->now();
    return cached->expired(now) ? std::nullopt : std::optional(Found{cached, now});
  }

  const GuardOptions options_;
  std::array<Breaker, kStoreServersMax> breakers_; // by Store::server_of
  ReplayCache replays_{kReplayCacheBytes};
  OwnClaims own_claims_;
  OwnersHere owners_here_;
  const std::uint64_t process_; // the random half of the tokens made here
  std::atomic<std::uint64_t> claims_{0};
  Jobs jobs_{*this};
  Later later_;
  // Destroyed first: its last callbacks need what is above.
  std::unique_ptr<Store> server_;
};

} // namespace

std::unique_ptr<Store> guarded(std::unique_ptr<Store> server, GuardOptions options) {
  return std::make_unique<GuardedStore>(std::move(server), options);
}

} // namespace oncekey
