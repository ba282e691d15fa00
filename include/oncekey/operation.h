// Operation: what a request does, as phases between foreign calls.
//
// A request that changes the application's database and calls a foreign API can die anywhere in between. An Operation
// divides the work where that would hurt: a *phase* is a group of database writes that commit together, a *foreign
// call* happens between two phases and never inside a transaction, and a *recovery point* is the name of the place
// reached. The recovery point commits with the phase's writes. The next attempt, the client's or the completer's, goes
// on from there.
//
//     oncekey::Operation book("book_ride");
//     book.phase("started", [](oncekey::Phase& phase) {
//       const auto ride = phase.execute("INSERT INTO rides (…) VALUES ($1, …) RETURNING id", {…});
//       phase.keep_note("ride", ride.rows[0]["id"].integer());
//       return phase.next("ride_created");
//     });
//     book.call_then_phase(
//         "ride_created", "charge",
//         [&](const oncekey::ForeignCall& call) { return processor.charge(call.key(), 2000, "usd"); },
//         [](oncekey::Phase& phase, const std::string& charge) {
//           phase.execute("UPDATE rides SET charge = $1 WHERE id = $2", {charge, phase.note<std::int64_t>("ride")});
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
// since the recovery point was reached the call is not made: the operation becomes a dead letter, for an operator to
// look at.
//
// Threads. The functions are called from several threads at once, and in other processes than the one that received the
// request: what they need beyond the request and the notes, they get from the database. An Operation is a value; the
// Runner copies it, with the functions in it.
//
// Operations that are under way outlive the program that began them: docs/CHANGING_AN_OPERATION.md says what a new
// version of a program may change.
//
// Mistakes in a declaration (two steps at one recovery point, a call without a label) throw std::invalid_argument,
// which names the operation and the step.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/record.h>
#include <oncekey/time.h>
#include <oncekey/transaction.h>

#include <any>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace oncekey {

// A request as an operation sees it. All of it but `compared` is kept with the operation until that is finished, so
// that the completer can go on without the client. All texts but the body are UTF-8 without zero bytes; a request with
// others is answered RequestInvalid (runner.h).
//
//     oncekey::OperationRequest request;
//     request.operation = "book_ride";
//     request.principal = "user:" + std::to_string(session.user_id);
//     request.key = http.header("Idempotency-Key");
//     request.path = http.path();
//     request.body = http.body();
//     request.content_type = http.header("Content-Type");
//
// A key is told apart by principal, method, path and key (by principal and key alone where RunnerPolicy::identity says
// so). The operation's name is not part of that: it is compared, as the body is. Two operations that may meet the same
// key of one principal therefore have different paths; otherwise the second one is a Mismatch.
struct OperationRequest {
  std::string operation{}; // the name of the Operation
  // Whose request it is: a lasting name of the account ("user:42"), not a credential. It is kept, and two principals
  // never meet, whatever keys they use. Must not be empty.
  std::string principal{};
  // The Idempotency-Key as the client sent it. The policy's rules check it; do not trim or unquote it before.
  std::string key{};
  std::string method = "POST";
  // As the client sent it. Another spelling of the same path (//, %41, a trailing slash) under the same key is a
  // mismatch, and never executed as another operation.
  std::string path{};
  std::string body{};
  // Tells how to compare bodies where the policy compares their meaning (FingerprintMode::canonical).
  std::string content_type{};
  // What is compared instead of the body, for applications that know better which parts make it another request.
  std::optional<std::string> compared{};
};

// Small texts that one step leaves for the later ones, such as the id of a row it made. They commit with the phase that
// keeps them. Big things belong in tables: all notes of an operation together have at most this many bytes, names
// included; a phase that keeps more ends in a fault.
inline constexpr std::size_t kNotesBytesMax = 64 * 1024;
using Notes = std::map<std::string, std::string, std::less<>>;

// A note that is not there, or cannot be read as the type asked for. The message names the note. Let it through: it is
// a mistake of the program, and the attempt fails with this message.
class NoteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a note can hold besides text. Kept as text that reads back as the same number.
template <class T>
concept NoteNumber = std::integral<T> || std::floating_point<T>;

namespace phases {
// How notes are written and read; used by note() and keep_note() below. They throw NoteError.
const std::string& note_text(const Notes& notes, std::string_view name);
std::int64_t note_integer(const Notes& notes, std::string_view name);
std::uint64_t note_unsigned(const Notes& notes, std::string_view name);
double note_real(const Notes& notes, std::string_view name);
bool note_truth(const Notes& notes, std::string_view name);
[[noreturn]] void note_does_not_fit(std::string_view name);
std::string text_of(std::int64_t number);
std::string text_of(std::uint64_t number);
std::string text_of(double number); // reads back as the same number
std::string text_of(bool truth);

template <class T>
T note_as(const Notes& notes, std::string_view name) {
  if constexpr (std::same_as<T, bool>) {
    return note_truth(notes, name);
  } else if constexpr (std::integral<T>) {
    const auto number = [&] {
      if constexpr (std::signed_integral<T>) {
        return note_integer(notes, name);
      } else {
        return note_unsigned(notes, name);
      }
    }();
    if (!std::in_range<T>(number)) note_does_not_fit(name);
    return static_cast<T>(number);
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(note_real(notes, name));
  } else {
    static_assert(std::same_as<T, std::string>, "a note is a text, a number or a bool");
    return note_text(notes, name);
  }
}

template <NoteNumber T>
std::string note_of(T value) {
  if constexpr (std::same_as<T, bool>) {
    return text_of(value);
  } else if constexpr (std::floating_point<T>) {
    return text_of(static_cast<double>(value));
  } else if constexpr (std::signed_integral<T>) {
    return text_of(static_cast<std::int64_t>(value));
  } else {
    return text_of(static_cast<std::uint64_t>(value));
  }
}
} // namespace phases

// What the function of a foreign call gets. Valid during the call of that function; what it needs later, it copies.
//
// With the Client of this library (client.h) a call that must not go on in doubt is three lines: decided() throws where
// the outcome is not certain, and a refusal is an outcome like any other.
//
//     [&](const oncekey::ForeignCall& call) {
//       oncekey::ClientRequest charge;
//       charge.url = "https://api.example.com/v1/charges";
//       charge.body = fmt::format(R"({{"amount":2000,"ride":{}}})", call.note<std::int64_t>("ride"));
//       charge.key = call.key();
//       return oncekey::decided(client.send(charge));
//     }
class ForeignCall {
 public:
  ForeignCall(std::string key, const OperationRequest& request, const Notes& notes)
      : key_(std::move(key)), request_(request), notes_(notes) {}

  // The idempotency key for the foreign API: a UUID, the same on every attempt, another one for every label and every
  // operation (derive.h).
  const std::string& key() const { return key_; }
  const OperationRequest& request() const { return request_; }
  // A note as text, or nothing if no earlier phase kept one of that name.
  std::optional<std::string> note(std::string_view name) const;
  // As a std::string, an integer, a double or a bool. Throws NoteError if it is missing or something else.
  template <class T>
  T note(std::string_view name) const {
    return phases::note_as<T>(notes_, name);
  }

 private:
  std::string key_;
  const OperationRequest& request_;
  const Notes& notes_;
};

// How a phase ended; made by Phase's next(), respond() and stay(), and returned by the function of the phase.
struct NextPoint {
  std::string recovery_point; // where the next step starts
};
struct Respond {
  StoredResponse response; // what every retry gets
};
struct Stay {};
using PhaseEnd = std::variant<NextPoint, Respond, Stay>;

// What the function of a phase gets: the open transaction (transaction.h), the request, and the notes. It is valid
// during the call. The function may run more than once before its transaction commits; notes kept by a run that was
// rolled back are gone.
class Phase : public Transaction {
 public:
  Phase(phases::Session& session, const OperationRequest& request, Notes notes)
      : Transaction(session), request_(request), notes_(std::move(notes)) {}

  const OperationRequest& request() const { return request_; }

  // A note as text, or nothing; also one that this phase has kept itself.
  std::optional<std::string> note(std::string_view name) const;
  // As a std::string, an integer, a double or a bool. Throws NoteError if it is missing or something else.
  template <class T>
  T note(std::string_view name) const {
    return phases::note_as<T>(notes_, name);
  }
  // Replaces a note of the same name.
  void keep_note(std::string_view name, std::string_view value);
  template <NoteNumber T>
  void keep_note(std::string_view name, T value) {
    keep_note(name, std::string_view(phases::note_of(value)));
  }

  // The phase's writes and this recovery point commit together; the step that starts there is next.
  [[nodiscard]] PhaseEnd next(std::string recovery_point) const { return NextPoint{std::move(recovery_point)}; }

  // The operation is finished, and this is what every retry will get: status, headers and body bytes as they are here.
  // A refusal ("402 card declined") finishes it just as well. Header names are tokens and values hold no line breaks or
  // other control characters. What frames a message or marks a replay is the server's and the library's: Connection,
  // Content-Length, Keep-Alive, Idempotent-Replayed, TE, Trailer, Transfer-Encoding, Upgrade. A response with any of
  // these is rolled back and ends the run in a fault of kind `invalid`.
  [[nodiscard]] PhaseEnd respond(StoredResponse response) const { return Respond{std::move(response)}; }
  [[nodiscard]] PhaseEnd respond(int status, std::string_view content_type, std::string body) const;

  // The writes commit, the recovery point stays, and the run goes on with the step declared after this one. After a
  // crash this phase runs again: only for phases whose writes may happen twice, such as one that notes in a table of
  // the application that the next call is about to be made.
  [[nodiscard]] PhaseEnd stay() const { return Stay{}; }

  const Notes& notes() const { return notes_; }

 private:
  const OperationRequest& request_;
  Notes notes_;
};

// What the library must know about a foreign call.
struct CallRules {
  // Names the call among all calls of the operation. The derived key depends on it, so it never changes.
  std::string label;
  // How long the foreign API remembers a key, counted from the moment the recovery point before the call was reached.
  // The default is what the shortest of the big payment APIs promise.
  Millis key_memory = std::chrono::hours(24);
};

class Operation {
 public:
  using PhaseFunction = std::function<PhaseEnd(Phase&)>;

  // The name is kept with every operation in the database, and a completer finds the code by it: it never changes while
  // operations are unfinished.
  explicit Operation(std::string name);

  // A step without a foreign call. The step declared first is where operations start, by habit named "started".
  Operation& phase(std::string recovery_point, PhaseFunction run);

  // A step that first makes the call, outside any transaction, and then runs the phase with what the call returned:
  // `call` takes a const ForeignCall& and returns a value of any type that can be copied; `run` takes a Phase& and that
  // value. It is not stored: the phase runs right after the call, and a crash in between means that the call is made
  // again, with the same key.
  template <class Call, class Run>
  Operation& call_then_phase(std::string recovery_point, CallRules rules, Call call, Run run) {
    using Returned = std::decay_t<std::invoke_result_t<Call&, const ForeignCall&>>;
    static_assert(std::copy_constructible<Returned>, "what a foreign call returns is copied");
    static_assert(std::is_invocable_r_v<PhaseEnd, Run&, Phase&, const Returned&>,
                  "the phase after a call takes a Phase& and what the call returns");
    Step step;
    step.recovery_point = std::move(recovery_point);
    step.rules = std::move(rules);
    if (is_there(call)) {
      step.call = [call = std::move(call)](const ForeignCall& foreign) mutable {
        return std::any(std::in_place_type<Returned>, call(foreign));
      };
    }
    if (is_there(run)) {
      step.run = [run = std::move(run)](Phase& phase, const std::any& outcome) mutable -> PhaseEnd {
        return run(phase, *std::any_cast<Returned>(&outcome));
      };
    }
    return add_call(std::move(step));
  }
  template <class Call, class Run>
  Operation& call_then_phase(std::string recovery_point, std::string label, Call call, Run run) {
    return call_then_phase(std::move(recovery_point), CallRules{.label = std::move(label)}, std::move(call),
                           std::move(run));
  }

  // Operations that stand at the recovery point `former`, which an earlier version of the program had, go on at
  // `recovery_point`. Keep it for as long as such operations may exist: completers and clients resume them for days.
  Operation& alias(std::string former, std::string recovery_point);

  // What was declared, as the Runner reads it.
  struct Step {
    std::string recovery_point;
    CallRules rules;
    std::function<std::any(const ForeignCall&)> call; // empty: no call
    std::function<PhaseEnd(Phase&, const std::any& outcome)> run;
  };
  const std::string& name() const { return name_; }
  const std::vector<Step>& steps() const { return steps_; }
  // Where in steps() that recovery point is, by its name or an alias; nothing if no step starts there.
  std::optional<std::size_t> step_at(std::string_view recovery_point) const;
  // Throws std::invalid_argument for what can only be seen when all steps are declared; the Runner calls it.
  void check() const;

 private:
  template <class Function>
  static bool is_there(const Function& function) {
    if constexpr (requires { function.operator bool(); }) {
      return static_cast<bool>(function);
    } else {
      return true;
    }
  }
  Operation& add(Step step);
  Operation& add_call(Step step);
  [[noreturn]] void mistake(std::string_view what) const;

  std::string name_;
  std::vector<Step> steps_;
  std::map<std::string, std::string, std::less<>> aliases_;
};

} // namespace oncekey
