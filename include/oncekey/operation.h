// Operation: what a request does, as phases between foreign calls.
//
// A request that changes the application's database and calls somebody else's API can die anywhere in between. An
// Operation divides the work where that would hurt: a *phase* is a group of database writes that commit together, a
// *foreign call* happens between two phases and never inside a transaction, and a *recovery point* is the name of the
// place reached. The recovery point commits with the phase's writes. Whoever tries again, the client or the completer,
// goes on from there.
//
//     oncekey::Operation book("book_ride");
//     book.phase("started", [](oncekey::Phase& phase) {
//       const auto ride = phase.execute("INSERT INTO rides (…) VALUES ($1, …) RETURNING id", {…});
//       phase.keep_note("ride", std::to_string(ride.rows[0].integer(0)));
//       return phase.next("ride_created");
//     });
//     book.call_then_phase(
//         "ride_created", "charge",
//         [&](const oncekey::ForeignCall& call) { return processor.charge(call.key(), 2000, "usd"); },
//         [](oncekey::Phase& phase, const std::string& charge) {
//           phase.execute("UPDATE rides SET charge = $1 WHERE id = $2", {charge, …});
//           return phase.next("charge_created");
//         });
//     book.phase("charge_created", [](oncekey::Phase& phase) {
//       phase.stage_job({.sink = "mail", .name = "send_receipt", .args = "[…]"});
//       return phase.respond(201, "application/json", "{…}");
//     });
//
// Foreign calls get a key derived from the operation's, the same on every attempt, so that a foreign API with
// idempotency keys of its own does the work once however often it is called. A call whose outcome is unknown (time-out,
// connection lost, 5xx) must throw: the operation stays where it is and the call is made again with the same key. An
// outcome that is certain, a declined card too, is returned, and the phase after the call decides what it means.
// Returning "unknown" as if it were a decision is how money is lost.
//
// Foreign memories end. Stripe forgets a key after 24 hours, and the same call would charge again. Past `key_memory`
// since the recovery point was reached the call is not made: the operation goes to the dead letters, for a person to
// look at.
//
// The functions are called from several threads at once, and in other processes than the one that received the request:
// what they need beyond the request and the notes, they get from the database.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/record.h>
#include <oncekey/time.h>
#include <oncekey/transaction.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace oncekey {

// A request as an operation sees it. All of it but `compared` is kept with the operation until that is finished, so
// that the completer can go on without the client.
struct OperationRequest {
  std::string operation{}; // the name of the Operation
  // Whose request it is: a lasting name of the account ("user:42"), not a credential. It is kept, and two principals
  // never meet, whatever keys they use. Must not be empty.
  std::string principal{};
  std::string key{}; // the Idempotency-Key as the client sent it; checked by the policy's rules
  std::string method = "POST";
  std::string path{};
  std::string body{};
  std::string content_type{}; // tells the policy how to compare bodies where it compares their meaning
  // What is compared instead of the body, for applications that know better which parts make it another request.
  std::optional<std::string> compared{};
};

// Small texts that one step leaves for the later ones; they commit with the phase that keeps them. Big things belong in
// tables: all notes of an operation together have at most this many bytes.
inline constexpr std::size_t kNotesBytesMax = 64 * 1024;
using Notes = std::map<std::string, std::string, std::less<>>;

class ForeignCall {
 public:
  ForeignCall(std::string key, const OperationRequest& request, const Notes& notes)
      : key_(std::move(key)), request_(request), notes_(notes) {}

  // The idempotency key for the foreign API: a UUID, the same on every attempt, another one for every label and every
  // operation (derive.h).
  const std::string& key() const { return key_; }
  const OperationRequest& request() const { return request_; }
  // Nothing if no earlier phase kept one of that name.
  std::optional<std::string> note(std::string_view name) const;

 private:
  std::string key_;
  const OperationRequest& request_;
  const Notes& notes_;
};

// How a phase ended; made by Phase's next, respond and nothing.
struct NextPoint {
  std::string recovery_point;
};
struct Respond {
  StoredResponse response;
};
struct NothingToRecord {};
using PhaseEnd = std::variant<NextPoint, Respond, NothingToRecord>;

class Phase : public Transaction {
 public:
  Phase(phases::Session& session, const OperationRequest& request, Notes notes)
      : Transaction(session), request_(request), notes_(std::move(notes)) {}

  const OperationRequest& request() const { return request_; }

  std::optional<std::string> note(std::string_view name) const;
  // Replaces a note of the same name.
  void keep_note(std::string_view name, std::string_view value);

  // The phase's writes and this recovery point commit together; the step that starts there is next.
  PhaseEnd next(std::string recovery_point) const { return NextPoint{std::move(recovery_point)}; }

  // The operation is finished, and this is what every retry will get: status, headers and body bytes as they are here.
  // A refusal ("402 card declined") finishes it just as well.
  PhaseEnd respond(StoredResponse response) const { return Respond{std::move(response)}; }
  PhaseEnd respond(int status, std::string_view content_type, std::string body) const;

  // The writes commit, the recovery point stays, and the run goes on with the step declared after this one. After a
  // crash this phase runs again: only for phases that may.
  PhaseEnd nothing() const { return NothingToRecord{}; }

  const Notes& notes() const { return notes_; }

 private:
  const OperationRequest& request_;
  Notes notes_;
};

struct CallRules {
  // How long the foreign API remembers a key, counted from the moment the recovery point before the call was reached.
  // The default is what the shortest of the big payment APIs promise.
  Millis key_memory = std::chrono::hours(24);
};

class Operation {
 public:
  using PhaseFunction = std::function<PhaseEnd(Phase&)>;
  using CallFunction = std::function<std::string(const ForeignCall&)>;
  using PhaseAfterCall = std::function<PhaseEnd(Phase&, const std::string& outcome)>;

  explicit Operation(std::string name);

  // A step without a foreign call. The step declared first is where operations start, by habit named "started".
  Operation& phase(std::string recovery_point, PhaseFunction run);

  // A step that first makes the call, outside any transaction, and then runs the phase with what the call returned. The
  // label names the call among all calls of the operation; the derived key depends on it, so it never changes.
  Operation& call_then_phase(std::string recovery_point, std::string label, CallFunction call, PhaseAfterCall run,
                             CallRules rules = {});

  struct Step {
    std::string recovery_point;
    std::string label; // empty: no call
    CallFunction call; // empty: no call
    PhaseAfterCall run;
    CallRules rules;
  };
  const std::string& name() const { return name_; }
  const std::vector<Step>& steps() const { return steps_; }
  // Where in steps() that recovery point is; nothing if no step starts there.
  std::optional<std::size_t> step_at(std::string_view recovery_point) const;

 private:
  Operation& add(Step step);

  std::string name_;
  std::vector<Step> steps_;
};

} // namespace oncekey
