#include <oncekey/operation.h>

#include "base/reasons.h"
#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace oncekey {
namespace {

std::optional<std::string> find_note(const Notes& notes, std::string_view name) {
  const auto found = notes.find(name);
  if (found == notes.end()) return std::nullopt;
  return found->second;
}

template <class Number>
Number number_of(const Notes& notes, std::string_view name, std::string_view kind) {
  const std::string& text = phases::note_text(notes, name);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size() && !text.empty()) return number;
  throw NoteError(fmt::format("the note \"{}\" is \"{}\", not {}", name, as_utf8(text).substr(0, 100), kind));
}

} // namespace

namespace phases {

const std::string& note_text(const Notes& notes, std::string_view name) {
  const auto found = notes.find(name);
  if (found == notes.end()) throw NoteError(fmt::format("no earlier phase kept a note \"{}\"", name));
  return found->second;
}

std::int64_t note_integer(const Notes& notes, std::string_view name) {
  return number_of<std::int64_t>(notes, name, "an integer");
}
std::uint64_t note_unsigned(const Notes& notes, std::string_view name) {
  return number_of<std::uint64_t>(notes, name, "an integer without a sign");
}
double note_real(const Notes& notes, std::string_view name) { return number_of<double>(notes, name, "a number"); }

bool note_truth(const Notes& notes, std::string_view name) {
  const std::string& text = note_text(notes, name);
  if (text == "true") return true;
  if (text == "false") return false;
  throw NoteError(fmt::format("the note \"{}\" is \"{}\", not true or false", name, as_utf8(text).substr(0, 100)));
}

void note_does_not_fit(std::string_view name) {
  throw NoteError(fmt::format("the note \"{}\" does not fit into the type asked for", name));
}

std::string text_of(std::int64_t number) { return fmt::format("{}", number); }
std::string text_of(std::uint64_t number) { return fmt::format("{}", number); }
std::string text_of(double number) { return fmt::format("{}", number); } // the shortest text that reads back the same
std::string text_of(bool truth) { return truth ? "true" : "false"; }

} // namespace phases

std::optional<std::string> ForeignCall::note(std::string_view name) const { return find_note(notes_, name); }
std::optional<std::string> Phase::note(std::string_view name) const { return find_note(notes_, name); }

void Phase::keep_note(std::string_view name, std::string_view value) {
  notes_.insert_or_assign(std::string(name), std::string(value));
}

PhaseEnd Phase::respond(int status, std::string_view content_type, std::string body) const {
  StoredResponse response;
  response.status = status;
  response.reason = reason_of(status);
  if (!content_type.empty()) response.headers.add("Content-Type", content_type);
  response.body = std::move(body);
  return Respond{std::move(response)};
}

Operation::Operation(std::string name) : name_(std::move(name)) {
  if (name_.empty()) throw std::invalid_argument("the name of an operation must not be empty");
  if (!is_utf8(name_) || name_.find('\0') != std::string::npos) mistake("its name is not UTF-8, or has a zero byte");
}

void Operation::mistake(std::string_view what) const {
  throw std::invalid_argument(fmt::format("operation {}: {}", as_utf8(name_), what));
}

Operation& Operation::phase(std::string recovery_point, PhaseFunction run) {
  Step step;
  step.recovery_point = std::move(recovery_point);
  if (run) step.run = [run = std::move(run)](Phase& phase, const std::any&) { return run(phase); };
  return add(std::move(step));
}

Operation& Operation::add_call(Step step) {
  const std::string& label = step.rules.label;
  if (label.empty()) mistake(fmt::format("the foreign call at {} has no label", step.recovery_point));
  if (!step.call) mistake(fmt::format("the foreign call at {} has no code", step.recovery_point));
  // The key of a foreign call is derived from its label: two calls with one label would be one call to the foreign API.
  for (const Step& other : steps_) {
    if (other.rules.label == label) {
      mistake(fmt::format("the calls at {} and {} both have the label {}, and would share a key", other.recovery_point,
                          step.recovery_point, label));
    }
  }
  return add(std::move(step));
}

Operation& Operation::add(Step step) {
  const std::string& point = step.recovery_point;
  if (point.empty()) mistake("the name of a recovery point must not be empty");
  if (!is_utf8(point) || point.find('\0') != std::string::npos) {
    mistake(fmt::format("the recovery point {} is not UTF-8, or has a zero byte", as_utf8(point)));
  }
  if (!step.run) mistake(fmt::format("the phase at {} has no code", point));
  if (step_at(point)) mistake(fmt::format("two steps start at the recovery point {}", point));
  steps_.push_back(std::move(step));
  return *this;
}

Operation& Operation::alias(std::string former, std::string recovery_point) {
  if (former.empty() || recovery_point.empty()) mistake("the two names of an alias must not be empty");
  if (step_at(former)) mistake(fmt::format("{} is a recovery point and cannot be an alias", former));
  aliases_.insert_or_assign(std::move(former), std::move(recovery_point));
  return *this;
}

std::optional<std::size_t> Operation::step_at(std::string_view recovery_point) const {
  const auto at = [&](std::string_view point) -> std::optional<std::size_t> {
    const auto step = std::ranges::find(steps_, point, &Step::recovery_point);
    if (step == steps_.end()) return std::nullopt;
    return static_cast<std::size_t>(step - steps_.begin());
  };
  if (const auto step = at(recovery_point)) return step; // counts before an alias
  const auto other = aliases_.find(recovery_point);
  return other == aliases_.end() ? std::nullopt : at(other->second);
}

void Operation::check() const {
  if (steps_.empty()) mistake("it has no steps");
  for (const auto& [former, now] : aliases_) {
    if (!step_at(former)) mistake(fmt::format("the alias {} leads to {}, where no step starts", former, now));
  }
}

} // namespace oncekey
