// Result<T>: a value, or the fault that kept us from having one.
//
// Three kinds of "no" exist in Oncekey and only one of them is a Result:
//   - An expected answer (claimed, in progress, mismatch, lost lease) is a variant or an enum.
//   - A fault (store down, time-out, corrupt record, bad configuration) is a Result.
//   - A bug is an ONCEKEY_CHECK and ends the process.
//
// A Result must be looked at: dropping one on the floor does not compile without a warning, and warnings are errors.
#pragma once

#include <oncekey/check.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace oncekey {

enum class FaultKind {
  unavailable,  // the dependency cannot be reached or refuses to work; trying again later may help
  timeout,      // no answer in time; whether the call happened is not known
  corrupt,      // what was read fails its checksum or does not parse
  newer_format, // written by a newer version of Oncekey than this one
  invalid,      // the caller's input (configuration, URL, argument) is wrong
  conflict,     // the state of the thing does not allow the operation
  exhausted,    // a limit of our own (connections) is used up at the moment; nothing was done
};

std::string_view to_string(FaultKind kind);

struct Fault {
  FaultKind kind;
  // A sentence for the person who has to act on it: what failed, on what, and where known what to do.
  std::string message;
};

// Stands for "nothing to return" in a Result.
struct Unit {
  friend bool operator==(Unit, Unit) { return true; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Fault fault) : state_(std::in_place_index<1>, std::move(fault)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value. Calling this on a fault is a bug and ends the process.
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
  // By value, so that what is taken out of a temporary outlives it: `for (auto& x : list(…).value())` is safe.
  T value() && {
    auto* const held = std::get_if<0>(&state_);
    ONCEKEY_CHECK(held != nullptr, "value() of a Result that holds a fault");
    return std::move(*held);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // The fault. Calling this on a value is a bug and ends the process.
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

using Status = Result<Unit>;

inline Status ok_status() { return Unit{}; }

inline Fault invalid(std::string message) { return Fault{FaultKind::invalid, std::move(message)}; }
inline Fault corrupt(std::string message) { return Fault{FaultKind::corrupt, std::move(message)}; }
inline Fault unavailable(std::string message) { return Fault{FaultKind::unavailable, std::move(message)}; }

} // namespace oncekey
