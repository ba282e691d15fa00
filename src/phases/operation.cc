#include <oncekey/operation.h>

#include <oncekey/check.h>

namespace oncekey {
namespace {

std::optional<std::string> find_note(const Notes& notes, std::string_view name) {
  const auto found = notes.find(name);
  if (found == notes.end()) return std::nullopt;
  return found->second;
}

} // namespace

std::optional<std::string> ForeignCall::note(std::string_view name) const { return find_note(notes_, name); }
std::optional<std::string> Phase::note(std::string_view name) const { return find_note(notes_, name); }

void Phase::keep_note(std::string_view name, std::string_view value) {
  notes_.insert_or_assign(std::string(name), std::string(value));
}

PhaseEnd Phase::respond(int status, std::string_view content_type, std::string body) const {
  StoredResponse response;
  response.status = status;
  if (!content_type.empty()) response.headers.add("Content-Type", content_type);
  response.body = std::move(body);
  return Respond{std::move(response)};
}

Operation::Operation(std::string name) : name_(std::move(name)) {
  ONCEKEY_CHECK(!name_.empty(), "an operation has a name");
}

Operation& Operation::phase(std::string recovery_point, PhaseFunction run) {
  ONCEKEY_CHECK(run != nullptr, "a phase has code");
  auto after_nothing = [run = std::move(run)](Phase& phase, const std::string&) { return run(phase); };
  return add({std::move(recovery_point), {}, {}, std::move(after_nothing), {}});
}

Operation& Operation::call_then_phase(std::string recovery_point, std::string label, CallFunction call,
                                      PhaseAfterCall run, CallRules rules) {
  ONCEKEY_CHECK(call != nullptr && run != nullptr, "a step with a call has code for both");
  ONCEKEY_CHECK(!label.empty(), "a foreign call has a label");
  for (const Step& step : steps_) ONCEKEY_CHECK(step.label != label, "two calls of an operation never share a key");
  return add({std::move(recovery_point), std::move(label), std::move(call), std::move(run), rules});
}

Operation& Operation::add(Step step) {
  ONCEKEY_CHECK(!step.recovery_point.empty(), "a recovery point has a name");
  ONCEKEY_CHECK(!step_at(step.recovery_point), "one step starts at a recovery point");
  steps_.push_back(std::move(step));
  return *this;
}

std::optional<std::size_t> Operation::step_at(std::string_view recovery_point) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].recovery_point == recovery_point) return i;
  }
  return std::nullopt;
}

} // namespace oncekey
