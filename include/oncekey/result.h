// Result<T>: a value, or the fault that prevented it.
//
// Three kinds of "no" exist in Oncekey, and only one of them is a Result:
//   - An expected answer (claimed, in progress, mismatch, lost lease) is a variant or an enum, handled by a switch.
//   - A fault (store down, time-out, corrupt record, wrong configuration) is a Result without a value.
//   - A bug is an ONCEKEY_CHECK (check.h) and ends the process.
// Functions of Oncekey that return a Result throw nothing, unless their comment says otherwise.
//
//     auto database = oncekey::open_database("sqlite:rides.db");
//     if (!database) {
//       std::cerr << database.fault().message << "\n";
//       return 1;
//     }
//     use(**database);
//
// A Result must be looked at: the compiler warns about one that is dropped. Taking the value of a fault, or the fault
// of a value, is a bug and ends the process; look at ok() first.
//
// A Result owns what it holds, and is copied and moved as that is. It has no lock: threads that share one must not
// change it.
#pragma once

#include <oncekey/check.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace oncekey {

// What a caller can do about a fault. Decide by the kind; the message is for people and may change.
//
//     switch (result.fault().kind) {
//       case oncekey::FaultKind::unavailable:
//       case oncekey::FaultKind::exhausted:
//         return try_again_later();
//       case oncekey::FaultKind::timeout:
//         return look_before_doing_it_again();
//       default:
//         return tell_an_operator(result.fault().message);
//     }
enum class FaultKind {
  // The dependency (store, database, server) cannot be reached, or refuses to work. Nothing was done, unless the
  // function's comment says otherwise. Trying again later may help.
  unavailable,
  // No answer came in time. Whether the call took effect is unknown: look before doing it again, or do it again in a
  // way that is safe twice, as under the same key.
  timeout,
  // What was read fails its checksum or does not parse. Trying again does not help.
  corrupt,
  // What was read was written by a newer version of Oncekey. Update this program.
  newer_format,
  // The caller's input (configuration, URL, argument) is wrong, or the program broke a rule of the interface. Nothing
  // was done. Trying again does not help.
  invalid,
  // The present state does not allow the operation: two transactions were in each other's way, or a name stands for
  // another request already. Nothing was done.
  conflict,
  // A limit of this process (connections) is used up at the moment. Nothing was done. Trying again later helps.
  exhausted,
};

// The enumerator's own spelling, as in logs: "newer_format".
std::string_view to_string(FaultKind kind);

struct Fault {
  FaultKind kind;
  // A sentence for the person who has to act: what failed, on what, and what to do where that is known. It holds no
  // password: URLs are masked before they get here.
  std::string message;
};

// Stands for "nothing to return" in a Result; see Status.
struct Unit {
  friend bool operator==(Unit, Unit) { return true; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  // Both are implicit, so that a function returns its value or its fault as it is.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Fault fault) : state_(std::in_place_index<1>, std::move(fault)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value. Calling this on a fault is a bug and ends the process. The references live as long as the Result.
  T& value() & {
    auto* const held = std::get_if<0>(&state_);
    ONCEKEY_CHECK(held != nullptr, "value() of a Result that holds a fault");
    return *held;
  }
  const T& value() const& {
    auto* const held = std::get_if<0>(&state_);
    ONCEKEY_CHECK(held != nullptr, "value() of a Result that holds a fault");
    return *held;
  }
  // Of a temporary, by value, so that what is taken out outlives it: `for (auto& x : list(…).value())` is safe.
  T value() && {
    auto* const held = std::get_if<0>(&state_);
    ONCEKEY_CHECK(held != nullptr, "value() of a Result that holds a fault");
    return std::move(*held);
  }
  // The same, spelled as for a pointer.
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // The fault. Calling this on a value is a bug and ends the process. To hand a fault on: `return
  // std::move(x).fault();`
  const Fault& fault() const& {
    auto* const held = std::get_if<1>(&state_);
    ONCEKEY_CHECK(held != nullptr, "fault() of a Result that holds a value");
    return *held;
  }
  Fault fault() && {
    auto* const held = std::get_if<1>(&state_);
    ONCEKEY_CHECK(held != nullptr, "fault() of a Result that holds a value");
    return std::move(*held);
  }

 private:
  std::variant<T, Fault> state_;
};

// For functions that have nothing to return but may fail.
using Status = Result<Unit>;

inline Status ok_status() { return Unit{}; }

// Faults of the common kinds.
inline Fault invalid(std::string message) { return Fault{FaultKind::invalid, std::move(message)}; }
inline Fault corrupt(std::string message) { return Fault{FaultKind::corrupt, std::move(message)}; }
inline Fault unavailable(std::string message) { return Fault{FaultKind::unavailable, std::move(message)}; }

} // namespace oncekey
