// One key: its record, what is known of its life, and what operators may do with it.
#include "admin/action_texts.h"
#include "admin/key_pages.h"
#include "admin/record_json.h"
#include "admin/retry_forecast.h"
#include "base/enum_name.h"

#include <algorithm>

namespace oncekey {

namespace json = boost::json;

namespace {

// A script that tries again and again to release a key must not fill the key's page.
constexpr std::size_t kActionsShown = 50;

Time as_time(KeyActivity::WallTime time) { return std::chrono::time_point_cast<Millis>(time); }

// An event of a timeline. What does not apply is null, so that every event has the same members.
struct LifeEvent {
  std::optional<Time> at;
  std::string_view event;
  std::string what;
  json::object more{};

  json::object shown() const {
    json::object out{{"at", at ? json::value(iso_time(*at)) : json::value()},
                     {"event", json_text(event)},
                     {"text", json_text(what)},
                     {"gateway", nullptr},
                     {"fence", nullptr},
                     {"trace", nullptr},
                     {"who", nullptr},
                     {"reason", nullptr},
                     {"count", nullptr},
                     {"until", nullptr}};
    for (const auto& [name, value] : more) out[name] = value;
    return out;
  }
};

// Whether an operator may do this now, and why not. The store decides again at the moment of the write.
std::optional<std::string_view> why_not(OperatorAction action, const Record& record, Time now) {
  if (record.state == RecordState::completed) return "it has its answer";
  if (record.state == RecordState::in_progress && !record.lease_over(now))
    return "its owner is at work: the lease is live";
  if (action == OperatorAction::hold && record.state == RecordState::indeterminate) return "it is held already";
  return std::nullopt;
}

json::array actions_of(const Record& record, Time now) {
  json::array all;
  for (const ActionText& each : key_actions()) {
    const auto action = enum_named<OperatorAction>(each.action);
    const auto why = why_not(*action, record, now);
    all.push_back(json::object{
        {"action", json_text(each.action)}, {"allowed", !why}, {"why_not", why ? json_text(*why) : json::value()}});
  }
  return all;
}

// What this gateway has seen of the key's retries.
json::value activity_json(const std::optional<KeyActivity::Seen>& seen, std::string_view gateway) {
  if (!seen) return nullptr;
  const auto newest = *std::max_element(seen->last.begin(), seen->last.end());
  return json::object{{"replays", seen->count(KeyActivity::Kind::replay)},
                      {"mismatches", seen->count(KeyActivity::Kind::mismatch)},
                      {"in_progress", seen->count(KeyActivity::Kind::in_progress)},
                      {"held", seen->count(KeyActivity::Kind::held)},
                      {"first_at", iso_time(as_time(seen->first))},
                      {"last_at", iso_time(as_time(newest))},
                      {"gateway", json_text(gateway)}};
}

std::string_view claim_words(std::string_view event) {
  if (event == "claimed") return "an earlier owner claimed the key";
  if (event == "taken_over") return "an earlier owner took the key over";
  if (event == "released") return "an earlier owner released the key: a retry executes";
  if (event == "held") return "an owner did not learn the outcome: no retry executed until an operator decided";
  return "an earlier owner lost its lease";
}

// A lease that is over may have been ended early by the release of a takeover: then its end tells nothing of a renewal.
bool knows_its_renewal(const Record& record, Time now) {
  return !record.response && !(record.took_over && record.lease_over(now));
}

// `course` is that of a call at work in this gateway, which the record does not have yet.
std::vector<LifeEvent> events_of_record(const Record& record, std::optional<Course> course, Time now) {
  std::vector<LifeEvent> events;
  if (record.response) course = record.response->course;
  // The claim that the record knows is the newest one.
  json::object claim{{"gateway", json_text(record.context.gateway)}, {"fence", record.fence}};
  if (record.context.trace) claim["trace"] = hex_encode(*record.context.trace);
  const bool in_progress = record.state == RecordState::in_progress;
  events.push_back({record.first_received, "received", "first request received, and the key claimed",
                    record.took_over ? json::object{} : claim});
  if (record.took_over) {
    // A record in progress knows when; an answer has it in its course. Held ones know it no more.
    std::optional<Time> at;
    if (in_progress) at = record.claimed_at();
    if (course) at = course->claimed_at;
    events.push_back(
        {at, "taken_over", "the lease of the first owner ended without an answer, and a retry took over", claim});
  }
  if (course && course->forwarded_at != Time{})
    events.push_back({course->forwarded_at, "forwarded", "the request went to the upstream"});
  if (course && course->renewals > 0) {
    events.push_back({course->renewed_at,
                      "renewed",
                      "the owner renewed its lease while the upstream worked; this is the last time",
                      {{"count", course->renewals}}});
  } else if (!course && knows_its_renewal(record, now) && record.renewed_at()) {
    events.push_back({*record.renewed_at(), "renewed", "the owner renewed its lease for the last time"});
  }
  if (in_progress && !record.lease_over(now)) {
    events.push_back(
        {now, "lease", "the owner is at work, and its lease is live", {{"until", iso_time(record.lease_until)}}});
  } else if (in_progress && record.rerun) {
    events.push_back({record.lease_until, "rerun_allowed", "an operator lets the next retry execute"});
  } else if (in_progress) {
    events.push_back(
        {record.lease_until, "lease_over", "the lease ended without an answer: whether it was executed is not known"});
  }
  if (record.state == RecordState::completed) {
    events.push_back({record.settled_at, "completed",
                      fmt::format("answered with status {}", record.response ? record.response->status : 0)});
  }
  if (record.state == RecordState::indeterminate) {
    events.push_back(
        {record.settled_at, "held", "the outcome is unknown: no retry executes until an operator decides"});
  }
  return events;
}

} // namespace

json::array KeyPages::timeline(const RecordId& id, const Record& record, const RecordTrail& trail, Time now) const {
  std::vector<LifeEvent> events = events_of_record(record, shared_.live_calls.course_of(id, record.fence), now);
  const auto seen = shared_.key_activity.find(id);
  // This process has counted them since its start. The audit log, where it has decisions, knows of those before.
  const auto add = [&](KeyActivity::Kind kind, std::string_view decision, std::string_view event,
                       std::string_view what) {
    const std::uint64_t counted = seen ? seen->count(kind) : 0;
    const auto logged = trail.decisions.find(decision);
    if (logged != trail.decisions.end() && logged->second.count > counted) {
      events.push_back({logged->second.last,
                        event,
                        fmt::format("{}, by the audit log", what),
                        {{"count", logged->second.count}, {"gateway", json_text(logged->second.gateway)}}});
    } else if (counted > 0) {
      events.push_back({as_time(seen->last_of(kind)),
                        event,
                        std::string(what),
                        {{"count", counted}, {"gateway", json_text(shared_.name)}}});
    }
  };
  // Of earlier owners, whom the record does not know any more.
  for (const RecordTrail::Claim& claim : trail.claims) {
    // The record tells of its newest claim, and that it is held for as long as it is.
    const bool was_held = claim.event == "held" && record.state != RecordState::indeterminate;
    if (claim.fence == record.fence && !was_held) continue;
    events.push_back({claim.at,
                      claim.event,
                      fmt::format("{}, by the audit log", claim_words(claim.event)),
                      {{"gateway", json_text(claim.gateway)},
                       {"fence", claim.fence},
                       {"trace", claim.trace.empty() ? json::value() : json_text(claim.trace)}}});
  }
  using Kind = KeyActivity::Kind;
  add(Kind::replay, "replay", "replayed", "retries answered from the record; this is the last one");
  add(Kind::in_progress, "in_progress", "in_progress", "retries that found the first request at work; the last one");
  add(Kind::held, "indeterminate", "held_retry", "retries that were told that the outcome is unknown; the last one");
  add(Kind::mismatch, "mismatch", "mismatch", "other requests refused under this key; the last one");
  const std::size_t left_out = trail.actions.size() - std::min(trail.actions.size(), kActionsShown);
  if (left_out > 0) {
    events.push_back({trail.actions[left_out - 1].at, "operator",
                      fmt::format("{} actions of operators up to here: the audit log has them", left_out)});
  }
  for (std::size_t at = left_out; at < trail.actions.size(); ++at) {
    const AuditLine& line = trail.actions[at];
    events.push_back({line.at,
                      "operator",
                      fmt::format("{}: {}", line.action, line.result),
                      {{"who", json_text(line.who)}, {"reason", json_text(line.reason)}}});
  }
  events.push_back({record.expires_at, "expires", "from then on the key is free"});
  // An event without a time stays behind the one before it.
  Time last{};
  std::vector<std::pair<Time, const LifeEvent*>> order;
  for (const LifeEvent& each : events) {
    last = each.at.value_or(last);
    order.emplace_back(last, &each);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  json::array out;
  for (const auto& [time, each] : order) out.push_back(each->shown());
  return out;
}

Task<Result<std::optional<Found>>> KeyPages::look_up(const RecordId& id) {
  co_return co_await await_store<std::optional<Found>>(
      loop_, [&](auto done) { shared_.store.find(id, Interest::none, std::move(done)); });
}

Task<Result<Found>> KeyPages::find_by_id(std::string_view id_text, RecordId& id) {
  if (const auto whole = record_id_from_hex(id_text)) {
    id = *whole;
  } else {
    if (const Status prefix = check_id_prefix(id_text); !prefix) co_return prefix.fault();
    ListRequest request;
    request.id_prefix = id_text;
    request.limit = 2;
    using Lines = std::vector<Listed>;
    const Result<Lines> listed =
        co_await await_store<Lines>(loop_, [&](auto done) { shared_.store.list(request, std::move(done)); });
    if (!listed) co_return listed.fault();
    const auto only = only_id(*listed, "no key has an id that begins with {} (jobs: oncekey jobs)", id_text);
    if (!only) co_return only.fault();
    id = *only;
  }
  Result<std::optional<Found>> found = co_await look_up(id);
  if (!found) co_return std::move(found).fault();
  if (!found->has_value()) co_return invalid("no such key; it may have expired or been released (jobs: oncekey jobs)");
  co_return **std::move(found);
}

Task<PageAnswer> KeyPages::show(PageRequest& asked) {
  RecordId id;
  const Result<Found> found = co_await find_by_id(asked.id, id);
  if (!found) co_return refused(found.fault());
  const Record& record = *found->record;
  json::object body = key_json(id, record, found->now);
  if (record.response) body["response"] = response_json(*record.response, asked.bodies);
  const RecordTrail trail = co_await audit_.about(id);
  body["timeline"] = timeline(id, record, trail, found->now);
  body["activity"] = activity_json(shared_.key_activity.find(id), shared_.name);
  body["retry"] = retry_forecast(shared_.config(), record, found->now);
  body["actions"] = actions_of(record, found->now);
  body["audit"] = audit_.has_older() ? "log" : "memory";
  body["audit_back_to"] = trail.back_to.empty() ? json::value() : json::value(trail.back_to);
  co_return json_answer(body);
}

} // namespace oncekey
