// calls: what callers want of the store, waiting to be sent.
#pragma once

#include "store/postgres/connection.h"

#include "core/store.h"

#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace oncekey::postgres {

struct ClaimCall {
  ClaimRequest request;
  Done<ClaimAnswer> done;
  // The record was found and its response is too long for the answer to a claim: it is read like any other.
  bool only_read = false;
};

struct FindCall {
  RecordId id;
  Interest interest;
  Done<std::optional<Found>> done;
};

// The values are those of oncekey.settle().
enum class FenceVerb : std::int16_t {
  renew = 1,
  complete = 2,
  release = 3,
  hold = 4,
  hold_found = 5,
  attempt_again = 6,
  attempt_dead = 7,
  attempt_completed = 8,
};

struct FenceCall {
  FenceVerb verb;
  Ownership owner;
  Millis lease{};       // renew; the pause of attempt_again
  std::string response; // complete, and the message of a job: encoded
  bool partial = false; // complete: the body was left out and is not whole yet
  Done<FenceAnswer> done;
};

struct OperatorCall {
  RecordId id;
  OperatorAction action;
  std::string response;
  bool partial = false;
  Done<OperatorAnswer> done;
};

struct TakeCall {
  TakeRequest request;
  Done<std::vector<TakenJob>> done;
};

struct Call {
  std::variant<ClaimCall, FindCall, FenceCall, OperatorCall, TakeCall> what;
  // Sent by then, or refused; answered by then, or given up.
  Deadline send_by;
  Deadline answer_by;
};

// Calls of one id are made one after another. Takes have no id; this one keeps them in a lane of their own.
inline const RecordId kNoId{};

inline const RecordId& id_of(const Call& call) {
  struct Visitor {
    const RecordId& operator()(const TakeCall&) const { return kNoId; }
    const RecordId& operator()(const ClaimCall& claim) const { return claim.request.id; }
    const RecordId& operator()(const FindCall& find) const { return find.id; }
    const RecordId& operator()(const FenceCall& fence) const { return fence.owner.id; }
    const RecordId& operator()(const OperatorCall& by_hand) const { return by_hand.id; }
  };
  return std::visit(Visitor{}, call.what);
}

inline std::size_t body_bytes(const Call& call) {
  if (const auto* fence = std::get_if<FenceCall>(&call.what)) return fence->response.size();
  if (const auto* by_hand = std::get_if<OperatorCall>(&call.what)) return by_hand->response.size();
  const auto* claim = std::get_if<ClaimCall>(&call.what);
  if (claim != nullptr && claim->request.staged) return claim->request.staged->message.body.size();
  return 0;
}

inline bool is_claim(const Call& call) { return std::holds_alternative<ClaimCall>(call.what); }

inline void refuse(Call& call, const Fault& fault) {
  std::visit([&](auto& refused) { refused.done(fault); }, call.what);
}

// Answers on their way out: gathered under locks or in the middle of work, delivered when both are over.
class Outbox {
 public:
  template <class T>
  void add(Done<T>& done, Result<T> answer) {
    std::get<Answers<T>>(answers_).emplace_back(std::move(done), std::move(answer));
  }
  void refuse(Call& call, const Fault& fault) {
    std::visit([&](auto& refused) { add(refused.done, {fault}); }, call.what);
  }
  void deliver() {
    std::apply([](auto&... each) { (deliver_all(each), ...); }, answers_);
  }

 private:
  template <class T>
  using Answers = std::vector<std::pair<Done<T>, Result<T>>>;
  template <class T>
  static void deliver_all(Answers<T>& answers) {
    for (auto& [done, answer] : answers) done(std::move(answer));
    answers.clear();
  }

  std::tuple<Answers<ClaimAnswer>, Answers<std::optional<Found>>, Answers<FenceAnswer>, Answers<OperatorAnswer>,
             Answers<std::vector<TakenJob>>>
      answers_;
};

} // namespace oncekey::postgres
