#include "admin/job_pages.h"

#include "admin/action_texts.h"
#include "admin/record_json.h"
#include "base/enum_name.h"
#include "base/utf8.h"
#include "config/config.h"

#include <algorithm>

namespace oncekey {

namespace json = boost::json;

namespace {

// Newest first.
json::array attempts_json(const StoredJob& job) {
  json::array all;
  std::uint64_t number = job.attempts;
  for (auto each = job.tried.rbegin(); each != job.tried.rend(); ++each, --number) {
    all.push_back(json::object{{"attempt", number},
                               {"at", iso_time(each->at)},
                               {"gateway", json_text(each->gateway)},
                               {"status", each->result.status != 0 ? json::value(each->result.status) : json::value()},
                               {"result", json_text(to_string(each->result))}});
  }
  return all;
}

} // namespace

std::string_view why_not(JobAnswer answer) {
  switch (answer) {
    case JobAnswer::done:
      return "done";
    case JobAnswer::absent:
      return "no such job; it may have expired";
    case JobAnswer::taken:
      return "it is being delivered: try again when the attempt has ended";
    case JobAnswer::over:
      return "it was delivered or dropped already";
    case JobAnswer::message_gone:
      return "its message was not kept (keep_delivered = false, or it was dropped)";
    case JobAnswer::changed:
      return "it has changed since it was listed";
  }
  return "unknown";
}

Task<PageAnswer> JobPages::list(PageRequest& asked) {
  JobListRequest request;
  const std::string_view state = query_value(asked.query, "state");
  request.state = enum_named<JobState>(state);
  if (!state.empty() && !request.state)
    co_return refused(400, "state is one of waiting, taken, delivered, dropped, dead");
  request.route = decoded_query_value(asked.query, "destination");
  const Result<std::size_t> limit = limit_of(asked.query, request.limit);
  if (!limit) co_return refused(400, limit.fault().message);
  const Time now = shared_.store.now();
  const Result<ReceivedBetween> received =
      received_between(query_value(asked.query, "older_than"), query_value(asked.query, "newer_than"), now);
  if (!received) co_return refused(400, received.fault().message);
  request.staged_from = received->from;
  request.staged_before = received->before;
  // The store's order is no promise: the newest are among all that fit.
  request.limit = kListMax;
  Result<JobPage> page =
      co_await await_store<JobPage>(loop_, [&](auto done) { shared_.store.jobs().list(request, std::move(done)); });
  if (!page) co_return refused(503, page.fault().message);
  std::sort(page->jobs.begin(), page->jobs.end(), [](const StoredJob& a, const StoredJob& b) {
    return a.staged_at != b.staged_at ? a.staged_at > b.staged_at : a.id < b.id;
  });
  const bool more = !page->whole || page->jobs.size() > *limit;
  if (page->jobs.size() > *limit) page->jobs.resize(*limit);
  json::array jobs;
  for (const StoredJob& job : page->jobs) jobs.push_back(job_json(job, now));
  co_return json_answer({{"jobs", std::move(jobs)}, {"more", more}, {"whole", page->whole}});
}

Task<Result<FoundJob>> JobPages::find(std::string_view id_text) {
  std::optional<RecordId> id = record_id_from_hex(id_text);
  if (!id) {
    if (const Status prefix = check_id_prefix(id_text); !prefix) co_return prefix.fault();
    JobListRequest request;
    request.id_prefix = id_text;
    request.limit = 2;
    const Result<JobPage> page =
        co_await await_store<JobPage>(loop_, [&](auto done) { shared_.store.jobs().list(request, std::move(done)); });
    if (!page) co_return page.fault();
    const Result<RecordId> only = only_id(page->jobs, "no job has an id that begins with {}", id_text);
    if (!only) co_return only.fault();
    id = *only;
  }
  using Maybe = std::optional<FoundJob>;
  Result<Maybe> found =
      co_await await_store<Maybe>(loop_, [&](auto done) { shared_.store.jobs().find(*id, std::move(done)); });
  if (!found) co_return std::move(found).fault();
  if (!found->has_value()) co_return invalid("no such job; it may have expired");
  co_return **std::move(found);
}

json::array JobPages::actions_of(const StoredJob& job, Time now) const {
  const JobState state = job.state_at(now);
  const auto why = [&](std::string_view action) -> std::string_view {
    if (state == JobState::taken) return why_not(JobAnswer::taken);
    if (action == "drop") return job.open() || state == JobState::dead ? "" : why_not(JobAnswer::over);
    if (!job.message_kept) return why_not(JobAnswer::message_gone);
    return has_endpoint(shared_.config(), job.route) ? "" : kNoSuchEndpoint;
  };
  json::array all;
  for (const ActionText& each : job_actions()) {
    const std::string_view reason = why(each.action);
    all.push_back(json::object{{"action", json_text(each.action)},
                               {"allowed", reason.empty()},
                               {"why_not", reason.empty() ? json::value() : json_text(reason)}});
  }
  return all;
}

Task<PageAnswer> JobPages::show(PageRequest& asked) {
  const Result<FoundJob> found = co_await find(asked.id);
  if (!found) co_return refused(found.fault());
  json::object body = job_json(found->job, found->now);
  body["message"] = found->message ? json::value(message_json(*found->message, asked.bodies)) : json::value();
  if (found->unreadable) body["unreadable"] = as_utf8(found->unreadable->message);
  body["newest_attempts"] = attempts_json(found->job);
  body["actions"] = actions_of(found->job, found->now);
  json::array decisions;
  const RecordTrail trail = co_await audit_.about(found->job.id);
  for (const AuditLine& line : trail.actions) decisions.push_back(audit_json(line));
  body["decisions"] = std::move(decisions);
  body["audit_back_to"] = trail.back_to.empty() ? json::value() : json::value(trail.back_to);
  co_return json_answer(body);
}

Task<PageAnswer> JobPages::act(PageRequest& asked) {
  const auto action = enum_named<JobAction>(asked.action);
  if (!action) co_return refused(404, "the actions are retry and drop");
  const Result<FoundJob> found = co_await find(asked.id);
  if (!found) co_return refused(found.fault());
  const StoredJob& job = found->job;
  if (auto refusal = asked.refuse_unconfirmed(to_hex(job.id))) co_return *std::move(refusal);
  if (*action == JobAction::retry && !has_endpoint(shared_.config(), job.route)) {
    co_return refused(409, fmt::format("{}: \"{}\". Configure it again, or drop the job", kNoSuchEndpoint, job.route));
  }
  // An action that is sent again after a restart of the gateway meets a job that the first one has changed.
  std::optional<JobSeen> seen;
  if (!asked.text("version").empty()) seen = JobSeen{job.state, job.fence};
  if (seen && asked.text("version") != version_of(job)) {
    audit_.note(asked.audit_line(to_hex(job.id), asked.action, "refused: changed"));
    co_return refused(409, why_not(JobAnswer::changed), "changed");
  }
  const Result<JobAnswer> done = co_await await_store<JobAnswer>(loop_, [&](auto answered) {
    shared_.store.jobs().operate(job.id, job.route, *action, seen, std::move(answered));
  });
  audit_.note(asked.audit_line(to_hex(job.id), asked.action, result_word(done)));
  if (!done) co_return refused(503, done.fault().message);
  if (*done != JobAnswer::done) co_return refused(*done == JobAnswer::absent ? 404 : 409, why_not(*done));
  co_return PageAnswer{200, done_json(job.id, asked.action)};
}

} // namespace oncekey
