#include "cli/audit_summary.h"

#include "audit/read_audit.h"
#include "cli/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace oncekey {
namespace {

namespace json = boost::json;

// One claim of a record, or one action of an operator.
struct SummaryStep {
  std::string by_hand;  // the words for an action; all else is empty then
  std::string began;    // claimed, taken_over; empty if that line is not there
  std::string began_at; // a time
  std::string decision;
  std::string ended; // completed, released, held, abandoned, lease_lost; empty if no such line is there
  std::string ended_at;
  std::string status; // of the API's answer

  bool is_claim() const { return by_hand.empty(); }
  // Known by its fence alone, from lines about retries.
  bool is_unseen() const { return is_claim() && began.empty() && ended.empty(); }
  bool sent_nothing() const { return ended == "released" && status.empty(); }
  // Told from another one by its times alone.
  bool resembles(const SummaryStep& other) const {
    return is_claim() && other.is_claim() && ended == "released" && other.ended == ended && began == other.began &&
           status == other.status && decision == other.decision && !began.empty();
  }
};

struct ActionWords {
  std::string_view action;
  std::string_view words;
};
constexpr std::array<ActionWords, 4> kActionWords{
    {{"release", "released"}, {"complete", "answered"}, {"rerun", "rerun allowed"}, {"hold", "held"}}};

// 0 if the line has none.
std::uint64_t fence_of(const json::value& line) {
  const json::value& fence = member(line, "fence");
  json::error_code error;
  const auto number = fence.is_number() ? fence.to_number<std::uint64_t>(error) : 0;
  return error ? 0 : number;
}

// What happened to one record.
class RecordStory {
 public:
  void add(const json::value& line) {
    const std::string event = audit_text(line, "event");
    const std::string at = audit_text(line, "at");
    const std::uint64_t fence = fence_of(line);
    if (event == "action") return act(line, at);
    if (event == "claimed" || event == "taken_over") {
      begin(line, event, at, fence);
    } else if (event == "completed" || event == "released" || event == "held" || event == "abandoned" ||
               event == "lease_lost") {
      end(line, event, at, fence);
    } else if (event == "replayed") {
      replays_.add(at);
      (void)claim_of(fence);
    } else if (event == "refused") {
      ++(audit_text(line, "decision") == "mismatch" ? mismatches_ : others_);
      (void)claim_of(fence);
    } else if (event == "bypassed") {
      bypasses_.add(at);
    }
  }

  std::string text() const {
    const auto is = [this](auto what) { return std::any_of(steps_.begin(), steps_.end(), what); };
    const bool began = is([](const SummaryStep& step) { return !step.began.empty(); });
    const bool unseen = takeover_of_unseen_ || is([](const SummaryStep& step) { return step.is_unseen(); });
    std::string out = began ? executions() : " its execution is not in these lines";
    if (began && unseen) out += "; an earlier claim is not in these lines";
    bool first = true;
    for (std::size_t at = 0; at < steps_.size();) {
      std::size_t next = at + 1;
      while (next < steps_.size() && steps_[at].resembles(steps_[next])) ++next;
      if (!steps_[at].is_unseen()) {
        out += "; ";
        out += words_of(steps_[at], steps_[next - 1], next - at, first);
      }
      if (steps_[at].is_claim()) first = false;
      at = next;
    }
    if (state_ == Known::at_work) out += "; it is at work, or its outcome is unknown";
    if (state_ == Known::unknown) out += "; its outcome is unknown";
    out += bypasses_.words("let through unprotected");
    out += replays_.words("the answer given again");
    if (mismatches_ > 0) out += fmt::format("; {} refused as a different request", mismatches_);
    if (others_ > 0) out += fmt::format("; {} refused otherwise", others_);
    return out;
  }

 private:
  // Of the newest claim.
  enum class Known { nothing, at_work, unknown, free, answered };

  struct Times {
    std::size_t count = 0;
    std::string first, last;
    void add(const std::string& at) {
      if (count++ == 0) first = at;
      last = at;
    }
    std::string words(std::string_view what) const {
      if (count == 0) return {};
      if (count == 1) return fmt::format("; {} once, at {}", what, first);
      return fmt::format("; {} {} times, from {} to {}", what, count, first, last);
    }
  };

  // The claim with this fence, or a new one: its line may be in another gateway's log, or older than these.
  std::size_t claim_of(std::uint64_t fence) {
    if (fence == 0) return steps_.size();
    const auto [found, is_new] = by_fence_.try_emplace(fence, steps_.size());
    if (is_new) steps_.emplace_back();
    return found->second;
  }

  bool is_newest(std::size_t step) const { return by_fence_.rbegin()->second == step; }

  void begin(const json::value& line, const std::string& event, const std::string& at, std::uint64_t fence) {
    if (event == "taken_over" && by_fence_.empty()) takeover_of_unseen_ = true;
    const std::size_t number = claim_of(fence);
    if (number == steps_.size()) return;
    SummaryStep& step = steps_[number];
    step.began = event;
    step.began_at = at;
    step.decision = audit_text(line, "decision");
    if (is_newest(number) && step.ended.empty()) state_ = Known::at_work;
  }

  void end(const json::value& line, const std::string& event, const std::string& at, std::uint64_t fence) {
    const std::size_t number = claim_of(fence);
    if (number == steps_.size()) return;
    SummaryStep& step = steps_[number];
    // The answer of an owner that was thought to be gone counts, whichever of the lines was written first.
    if (step.ended == "completed") return;
    step.ended = event;
    step.ended_at = at;
    step.status = audit_text(line, "status");
    if (event == "completed") {
      state_ = Known::answered;
    } else if (is_newest(number) && event == "released") {
      // A takeover that is released leaves what the owner before it left.
      state_ = step.began == "taken_over" ? Known::unknown : Known::free;
    } else if (is_newest(number) && event != "lease_lost") {
      state_ = Known::unknown;
    }
  }

  void act(const json::value& line, const std::string& at) {
    const std::string action = audit_text(line, "action");
    const std::string result = audit_text(line, "result");
    for (const ActionWords& known : kActionWords) {
      if (known.action != action) continue;
      SummaryStep step;
      if (result == "done") {
        step.by_hand = fmt::format("{} by hand at {}, by {}", known.words, at, audit_text(line, "who"));
        state_ = action == "release" ? Known::free : action == "complete" ? Known::answered : Known::unknown;
      } else if (result == "fault") {
        step.by_hand = fmt::format("perhaps {} by hand at {}, by {}: the store did not say", known.words, at,
                                   audit_text(line, "who"));
      } else {
        return; // refused: nothing changed
      }
      steps_.push_back(std::move(step));
    }
  }

  // How often the API may have executed, as far as these lines know.
  std::string executions() const {
    std::size_t certain = 0;
    std::size_t possible = bypasses_.count + (takeover_of_unseen_ ? 1 : 0);
    for (const SummaryStep& step : steps_) {
      if (!step.is_claim()) continue;
      if (!step.sent_nothing()) ++possible;
      // The answer to a probe is that of an earlier execution.
      if (!step.began.empty() && step.ended == "completed" && step.decision != "probe") ++certain;
    }
    if (possible == 0) return " not executed";
    if (certain == possible) return certain == 1 ? " executed once" : fmt::format(" executed {} times", certain);
    return possible == 1 ? " executed at most once" : fmt::format(" executed up to {} times", possible);
  }

  // A step, or several of a kind from the first to the last of them.
  static std::string words_of(const SummaryStep& step, const SummaryStep& last, std::size_t count, bool first) {
    if (!step.is_claim()) return step.by_hand;
    std::string why =
        step.status.empty() ? "the request was not sent" : fmt::format("the answer {} is not kept", step.status);
    if (count > 1)
      return fmt::format("{} and released {} times, from {} to {}: {}",
                         step.began == "taken_over" ? "taken over" : "claimed", count, step.began_at, last.ended_at,
                         why);
    std::string out = step.began.empty() ? std::string("a claim that is not in these lines")
                                         : fmt::format("{} at {}",
                                                       step.began == "taken_over" ? "taken over"
                                                       : first                    ? "claimed"
                                                                                  : "claimed anew",
                                                       step.began_at);
    if (step.decision == "probe") out += " to ask the API (probe)";
    if (step.ended == "completed") out += fmt::format(", answered {} at {}", step.status, step.ended_at);
    if (step.ended == "released") out += fmt::format(", released at {}: {}", step.ended_at, why);
    if (step.ended == "held") out += fmt::format(", held at {}", step.ended_at);
    if (step.ended == "abandoned") out += fmt::format(", abandoned at {}", step.ended_at);
    if (step.ended == "lease_lost") out += fmt::format(", lease lost at {}", step.ended_at);
    if (step.ended.empty() && !step.began.empty()) out += ", its end is not in these lines";
    return out;
  }

  std::vector<SummaryStep> steps_;                // in the order of their first lines
  std::map<std::uint64_t, std::size_t> by_fence_; // the claims among them
  Known state_ = Known::nothing;
  bool takeover_of_unseen_ = false;
  Times replays_, bypasses_;
  std::size_t mismatches_ = 0, others_ = 0;
};

} // namespace

std::string audit_text(const json::value& line, std::string_view name) {
  const json::value& value = member(line, name);
  if (value.is_null()) return {};
  if (const json::string* const text = value.if_string())
    return printable({text->data(), text->size()}, kAuditTextShown);
  return json::serialize(value);
}

std::string audit_summary(const json::array& lines) {
  std::vector<std::pair<std::string, RecordStory>> stories;
  std::map<std::string, std::size_t> by_id;
  for (const json::value& line : lines) {
    const std::string id(text_of_member(line, "id"));
    if (id == "-") continue;
    const auto [found, is_new] = by_id.try_emplace(id, stories.size());
    if (is_new) stories.emplace_back(id, RecordStory());
    stories[found->second].second.add(line);
  }
  std::string out;
  for (const auto& [id, story] : stories)
    out += fmt::format("\nrecord {}:{}\n", id.substr(0, kRecordBeginningMin), story.text());
  return out;
}

} // namespace oncekey
