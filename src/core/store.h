// Store: where records live, and the one atomic step everything rests on.
//
// `claim` makes a caller the owner of a key, or returns the record of the first claim, in a single step: among any
// number of concurrent claims of one id exactly one is answered Claimed. The owner holds a lease, a stretch of time on
// the store's own clock, and a fence, a number that grows with every claim of the same key. Every later write of the
// owner names its fence; a write with an older fence changes nothing and is answered `lost`.
//
// Fences come from one counter of the store, or of the store's partition the key is in. The counter never goes back:
// not after a restart, not after the record has expired or was released, not after a failover that lost writes. So the
// number of an owner that was paused is never given again, and no record has to be kept for its number.
//
// Durability. A call is answered only when its effect is as durable as the store's level says: the gateway sends the
// first byte upstream after `claim` was answered and the first byte to the client after `complete` was.
// `lost`, and a job that is known already, are answered when what was seen is that durable: it may be what an earlier
// attempt of the same caller did.
//
// Threads. All calls may be made from any thread at any time. Answers arrive through a callback, once, on a thread of
// the store's choosing (possibly the caller's, before the call returns). Callbacks must not block.
//
// Messages to be delivered are not records: jobs() gives the place for them (core/job_store.h).
//
// Faults. A fault of kind `timeout` means the effect is unknown: read back with `find` before deciding anything. Every
// other kind means that nothing was changed.
#pragma once

#include "core/rate_keeper.h"

#include <oncekey/record.h>
#include <oncekey/result.h>
#include <oncekey/time.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace oncekey {

template <class T>
using Done = std::function<void(Result<T>)>;

// What to do with a claim whose lease is over and whose fingerprint is the same.
enum class Abandoned {
  leave,     // return it as found
  take_over, // become its owner with the next fence
};

struct ClaimRequest {
  RecordId id;
  Fingerprint fingerprint;
  Millis lease{};
  // For a first claim; a takeover keeps the expiry of the first. No record expires while a lease on it is live.
  Millis retention{};
  Abandoned abandoned = Abandoned::leave;
  ClaimToken token{}; // becomes Record::claimed_by
  // For people; see Record.
  std::string route;
  std::string key;
  std::string method;
  std::string target;
  ClaimContext context{}; // becomes Record::context
};

// The caller is the owner now.
struct Claimed {
  std::uint64_t fence = 0;
  // An earlier owner may have executed: see Record::took_over.
  bool took_over = false;
  Time now{};         // the store's clock at the claim
  ClaimToken token{}; // ClaimRequest::token; goes into the Ownership
};

// The key has a record already. Its fingerprint may differ from the caller's: compare it before looking at the state.
struct Found {
  Found(Record found, Time read) : record(std::make_shared<const Record>(std::move(found))), now(read) {}
  Found(std::shared_ptr<const Record> found, Time read) : record(std::move(found)), now(read) {}

  std::shared_ptr<const Record> record; // never null; a store that has it in memory shares it
  Time now;                             // the store's clock when the record was read
};

using ClaimAnswer = std::variant<Claimed, Found>;

// Names an ownership in renew, complete, release and hold.
//
// A fence alone is not always enough on a replicated server: a replica that becomes the primary without the last
// writes, and whose clock is behind that of the lost primary, may give a fence again. The token tells the two owners
// apart. Embedded stores have no tokens and go by the fence.
struct Ownership {
  RecordId id;
  std::uint64_t fence = 0;
  ClaimToken token{}; // Record::claimed_by; all zero when the claim had none, and then not compared
};
inline bool owned_by(const Record& record, const Ownership& owner) {
  return record.fence == owner.fence && (owner.token == ClaimToken{} || record.claimed_by == owner.token);
}

enum class FenceAnswer {
  done, // the write happened and is durable
  lost, // the fence is old, or the record is gone or settled otherwise; nothing was changed
};

// Who says that an outcome is unknown.
enum class Holder { owner, finder };

// What an owner may want. The numbers are those of oncekey.settle() in Postgres.
enum class FenceVerb : std::int16_t { renew = 1, complete = 2, release = 3, hold = 4, hold_found = 5 };

struct FenceCall {
  FenceVerb verb = FenceVerb::renew;
  Ownership owner;
  Millis lease{};          // renew
  StoredResponse response; // complete
  Done<FenceAnswer> done;
};

enum class OperatorAction {
  release,  // "it did not happen": free for a new first request
  complete, // "it happened, and this is the answer"
  rerun,    // "let the next retry execute it"
  hold,     // "the outcome is unknown: let no retry execute"
};
std::string_view to_string(OperatorAction action);

enum class OperatorAnswer {
  done,
  absent,    // no such record, or it has expired
  live,      // an owner is at work and its lease is live; wait or stop the owner first
  completed, // it has an answer already; changing that would break the promise made to its client
};

// Whether the caller of find() will wait for the record to be settled.
enum class Interest { none, settling };

enum class Durability { none, process, power };
std::string_view to_string(Durability level);

struct ListRequest {
  std::optional<RecordState> state;
  bool abandoned_only = false;
  std::string id_prefix; // hex digits the id begins with; empty for all
  std::size_t limit = 100;
};

// One line of a listing: the record without its response's headers and body.
struct Listed {
  RecordId id;
  Record record;
};

// Which keys `browse` shows.
enum class KeysShown {
  all,
  waiting, // abandoned or indeterminate: a person or a retry has to settle them
  others,  // all but the waiting ones
  in_progress,
  abandoned, // the lease is over, and no operator has allowed another run
  indeterminate,
  completed,
};

inline bool is_waiting(const Record& record, Time now) {
  return record.state == RecordState::indeterminate || record.left_abandoned(now);
}

inline bool is_shown(KeysShown shown, const Record& record, Time now) {
  switch (shown) {
    case KeysShown::all:
      return true;
    case KeysShown::waiting:
      return is_waiting(record, now);
    case KeysShown::others:
      return !is_waiting(record, now);
    case KeysShown::in_progress:
      return record.state == RecordState::in_progress;
    case KeysShown::abandoned:
      return record.left_abandoned(now);
    case KeysShown::indeterminate:
      return record.state == RecordState::indeterminate;
    case KeysShown::completed:
      return record.state == RecordState::completed;
  }
  return false;
}

// A place in the order of browse: newest first, and by id (downwards) among those received in one millisecond.
struct BrowsePlace {
  Time first_received{};
  RecordId id;
  friend bool operator==(const BrowsePlace&, const BrowsePlace&) = default;
};

struct BrowseRequest {
  KeysShown shown = KeysShown::all;
  std::string key;                    // this key alone; empty for all
  std::string route;                  // this route alone; empty for all
  std::optional<BrowsePlace> after{}; // only what comes after this place
  std::size_t limit = 100;
  // At most about so many records are looked at. A store may stop earlier.
  std::size_t look_max = 100'000;
};

struct BrowsePage {
  std::vector<Listed> lines; // newest first
  std::uint64_t looked = 0;  // records looked at
  bool whole = true;         // no record that fits is missing behind the last line
  // Where the look ended, to go on from there. Nothing when it is whole, and in a store without an index by time
  // (Redis) when fewer lines than the limit were found: what was not looked at may be newer or older than the lines.
  std::optional<BrowsePlace> next{};
};

// Keys that wait for a person, as KeysShown::abandoned and indeterminate have them. Counting ends at kWaitingCountMax.
struct WaitingKeys {
  std::uint64_t abandoned = 0;
  std::uint64_t indeterminate = 0;
  friend bool operator==(const WaitingKeys&, const WaitingKeys&) = default;
};
inline constexpr std::uint64_t kWaitingCountMax = 100'000;

struct StoreStats {
  std::uint64_t records_estimate = 0;
  std::uint64_t bytes_on_disk = 0;
  std::uint64_t bytes_in_memory = 0;
  std::uint64_t buckets = 0;
  std::uint64_t syncs = 0;  // group commits so far
  std::uint64_t writes = 0; // records written in them
};

// A gateway on this store, as it says of itself every few seconds.
struct GatewayBeat {
  std::string instance; // eight hex digits, made at its start
  std::string name;     // gateway_name
  std::string version;
  std::string state; // ready, draining or store
  Time started{};    // of its own wall clock
  Time seen{};       // on the store's clock; set by the store
  friend bool operator==(const GatewayBeat&, const GatewayBeat&) = default;
};
// Gateways that were silent for this long are forgotten.
inline constexpr Millis kGatewayForgottenAfter = std::chrono::hours(1);

class JobStore;
class Loop;

// More servers than this share numbers.
inline constexpr std::size_t kStoreServersMax = 64;

class Store {
 public:
  virtual ~Store() = default;

  // Absent and expired records are claimed afresh. A record with another fingerprint is always returned as found and
  // never changed. An abandoned one with the same fingerprint is taken over if `abandoned` says so or an operator
  // marked it `rerun`; one whose owner works in this process never (see owners_here).
  virtual void claim(ClaimRequest request, Done<ClaimAnswer> done) = 0;

  // The record as it is; nothing for absent and expired ones. With Interest::settling, and if the record is in
  // progress, its settling by another process will be told to the listener of announce_to.
  virtual void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) = 0;

  // What an owner wants of its record: one of the four that follow.
  virtual void by_fence(FenceCall call) = 0;

  // Extends the lease to now + lease.
  void renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
    by_fence({FenceVerb::renew, owner, lease, {}, std::move(done)});
  }

  // Stores the response; the record is replayed from now on, also one that a finder held meanwhile. Completing a record
  // again with the same fence replaces the response only where the first one was an omitted body not yet whole: that is
  // how a streamed answer gets its length and hash at the end.
  void complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
    by_fence({FenceVerb::complete, owner, {}, std::move(response), std::move(done)});
  }

  // The work did not happen. The record of a first claim is deleted, so that the key is free. A claim that had taken
  // over becomes abandoned instead, with its fingerprint, since the owner before it may have executed.
  void release(const Ownership& owner, Done<FenceAnswer> done) {
    by_fence({FenceVerb::release, owner, {}, {}, std::move(done)});
  }

  // The outcome is unknown: the record becomes indeterminate. Called by the owner, or by a request that found the
  // record abandoned (Holder::finder), with the fence that it was found with. `lost` if that fence is no longer the
  // newest. For a finder also if the owner has renewed since, works in this process, or an operator has allowed another
  // run.
  void hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
    by_fence({by == Holder::owner ? FenceVerb::hold : FenceVerb::hold_found, owner, {}, {}, std::move(done)});
  }

  // The jobs of this store, asked for anew with each call: a store that was not open may have become so.
  virtual JobStore& jobs() = 0;

  // Settles a record by hand. `response` is used by `complete` alone.
  virtual void operate(const RecordId& id, OperatorAction action, StoredResponse response,
                       Done<OperatorAnswer> done) = 0;

  // Newest first is not promised; the limit is. May take long on large stores: not for the hot path.
  virtual void list(const ListRequest& request, Done<std::vector<Listed>> done) = 0;

  // Keys for people, newest first, in pages. Bounded: see BrowseRequest and BrowsePage. The waiting ones are found by
  // an index of what is not settled, the others by an index by time (Redis has none: it looks at look_max records in no
  // order and sorts those that fit).
  virtual void browse(const BrowseRequest& request, Done<BrowsePage> done) = 0;

  // By the same index of what is not settled; cheap enough to be asked every few seconds. May be some seconds late.
  virtual void count_waiting(Done<WaitingKeys> done) = 0;

  // The listener is called with the id of a settled record that find() was asked about with Interest::settling, or with
  // nullopt when notifications may have been missed (a lost connection). Called from any thread, possibly late or
  // twice. Set once, before the first call. A store that only one process uses never calls it.
  using Listener = std::function<void(const std::optional<RecordId>& settled)>;
  virtual void announce_to(Listener /*listener*/) {}

  // Answers with the fence of the call of this process that works on the record, if there is one. After a pause of the
  // process (SIGSTOP, a suspended machine) the lease of such a call is over although its owner is alive: a claim then
  // renews the lease and finds the record in progress, and a finder cannot hold it. Asked from any thread; must not
  // block. Set once, before the first call. Other processes on a shared store see the lease alone.
  using OwnersHere = std::function<std::optional<std::uint64_t>(const RecordId& id)>;
  virtual void owners_here(OwnersHere /*owners*/) {}

  // Owners with a smaller fence are gone: they were calls of an earlier process. 0 where that is not known, because
  // other processes may own claims.
  virtual std::uint64_t least_fence_here() const { return 0; }

  // The store does its writing on this loop's thread from now on, where it can: a call from there then needs no other
  // thread. With null on a thread of the store's own, as at first. Called while the loop does not run.
  virtual void write_from(Loop* /*loop*/) {}

  virtual Time now() const = 0;

  // A store may be spread over several servers that fail one by one. Which of them has the record, as a number below
  // kStoreServersMax, and how many there are. From any thread.
  virtual std::size_t server_of(const RecordId& /*id*/) const { return 0; }
  virtual std::size_t servers() const { return 1; }

  // Thirty-two random bytes made when the store was created. Ids and fingerprints are keyed with them, so that all
  // gateways on one store agree and no caller can compute either.
  virtual const std::array<std::uint8_t, 32>& secret() const = 0;

  virtual Durability durability() const = 0;
  // Nothing while claims are taken, else why they are refused at the moment. A store of several servers is healthy as
  // long as one of them answers: the others stop their own keys alone.
  virtual Status healthy() const = 0;
  virtual StoreStats stats() const = 0;

  // Says that this gateway is alive, and answers with all that are on the store, this one included. A store that one
  // process has for itself knows of no other. Not for the hot path.
  virtual void beat(GatewayBeat mine, Done<std::vector<GatewayBeat>> done) {
    mine.seen = now();
    done(std::vector<GatewayBeat>{std::move(mine)});
  }

  // Buckets that all gateways on this store share; null where each process counts for itself. Lives as long as the
  // store.
  virtual RateKeeper* rates() { return nullptr; }
};

} // namespace oncekey
