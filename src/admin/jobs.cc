// The pages of the admin listener that are about jobs.
#include "admin/admin.h"
#include "admin/record_json.h"
#include "base/enum_name.h"
#include "config/config.h"
#include "core/job_store.h"

namespace oncekey {

namespace json = boost::json;

namespace {

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
  }
  return "unknown";
}

} // namespace

Task<Admin::Answer> Admin::list_jobs(std::string_view query) {
  JobListRequest request;
  const std::string_view state = query_value(query, "state");
  request.state = enum_named<JobState>(state);
  if (!state.empty() && !request.state)
    co_return refused(400, "state is one of waiting, taken, delivered, dropped, dead");
  request.route = decoded_query_value(query, "destination");
  const Result<std::size_t> limit = limit_of(query, request.limit);
  if (!limit) co_return refused(400, limit.fault().message);
  request.limit = *limit;
  const Result<JobPage> page =
      co_await await_store<JobPage>(loop_, [&](auto done) { shared_.store.jobs().list(request, std::move(done)); });
  if (!page) co_return refused(503, page.fault().message);
  const Time now = shared_.store.now();
  json::array jobs;
  for (const StoredJob& job : page->jobs) jobs.push_back(job_json(job, now));
  const json::object body{{"jobs", std::move(jobs)}, {"more", !page->whole}};
  co_return json_answer(body);
}

Task<Result<FoundJob>> Admin::find_job(std::string_view id_text) {
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

Task<Admin::Answer> Admin::show_job(std::string_view id_text) {
  const Result<FoundJob> found = co_await find_job(id_text);
  if (!found) co_return refused(found.fault());
  json::object body = job_json(found->job, found->now);
  body["message"] = found->message ? json::value(message_json(*found->message)) : json::value();
  if (found->unreadable) body["unreadable"] = found->unreadable->message;
  co_return json_answer(body);
}

Task<Admin::Answer> Admin::act_on_job(Exchange& exchange, std::string_view id_text, std::string_view action_text) {
  const bool retry = action_text == "retry";
  if (!retry && action_text != "drop") co_return refused(404, "the actions are retry and drop");
  json::object given;
  if (auto refusal = co_await read_action(exchange, given)) co_return *std::move(refusal);
  const Result<FoundJob> found = co_await find_job(id_text);
  if (!found) co_return refused(found.fault());
  const StoredJob& job = found->job;
  if (retry && !has_endpoint(shared_.config(), job.route)) {
    co_return refused(409, fmt::format("{}: \"{}\". Configure it again, or drop the job", kNoSuchEndpoint, job.route));
  }
  const JobAction action = retry ? JobAction::retry : JobAction::drop;
  const Result<JobAnswer> done = co_await await_store<JobAnswer>(
      loop_, [&](auto answered) { shared_.store.jobs().operate(job.id, job.route, action, std::move(answered)); });
  audit(exchange, job.id, nullptr, action_text, done && *done == JobAnswer::done ? "done" : "refused",
        text_member(given, "reason"));
  if (!done) co_return refused(503, done.fault().message);
  if (*done != JobAnswer::done) co_return refused(*done == JobAnswer::absent ? 404 : 409, why_not(*done));
  co_return Answer{200, done_json(job.id, action_text)};
}

} // namespace oncekey
