// The pages of the admin listener that are about messages which are delivered.
#include "admin/admin.h"
#include "admin/answers.h"
#include "admin/record_json.h"

#include <boost/json.hpp>

#include <algorithm>

namespace oncekey {

namespace json = boost::json;

namespace {

bool has_endpoint(const Config& config, std::string_view name) {
  const auto is_it = [&](const Endpoint& endpoint) { return endpoint.name == name; };
  return std::any_of(config.destinations.begin(), config.destinations.end(), is_it) ||
         std::any_of(config.webhooks.begin(), config.webhooks.end(),
                     [&](const Webhook& webhook) { return is_it(webhook.endpoint); });
}

} // namespace

Task<Admin::Answer> Admin::list_jobs(std::string_view query) {
  ListRequest request;
  request.staged = true;
  const std::string_view state = query_value(query, "state");
  if (state == "delivered" || state == "dropped") {
    request.state = RecordState::completed;
  } else if (state == "dead") {
    request.state = RecordState::indeterminate;
  } else if (state == "waiting" || state == "delivering") {
    request.state = RecordState::in_progress;
  } else if (!state.empty()) {
    co_return Answer{400, "application/json", problem("state is one of waiting, delivering, delivered, dropped, dead")};
  }
  const Result<std::size_t> limit = limit_of(query, request.limit);
  if (!limit) co_return Answer{400, "application/json", problem(limit.fault().message)};
  // Which of those in progress wait, and which of those that are over were dropped, is told only when they are here.
  const bool several = request.state == RecordState::in_progress || request.state == RecordState::completed;
  request.limit = several ? kListMax : *limit + 1;
  using Lines = std::vector<Listed>;
  const Result<Lines> listed =
      co_await await_store<Lines>(wakeups_, [&](auto done) { shared_.store.list(request, std::move(done)); });
  if (!listed) co_return Answer{503, "application/json", problem(listed.fault().message)};
  const Time now = shared_.store.now();
  json::array jobs;
  bool more = listed->size() >= kListMax;
  for (const Listed& line : *listed) {
    if (!state.empty() && job_state(line.record, now) != state) continue;
    if (jobs.size() == *limit) {
      more = true;
      break;
    }
    jobs.push_back(job_json(line.id, line.record, now));
  }
  json::object body;
  body["jobs"] = std::move(jobs);
  body["more"] = more;
  co_return Answer{200, "application/json", json::serialize(body)};
}

Task<Admin::Answer> Admin::show_job(std::string_view id_text) {
  RecordId id;
  const Result<Found> found = co_await find(id_text, id);
  if (!found) co_return Answer{status_of(found.fault()), "application/json", problem(found.fault().message)};
  if (!found->record->staged)
    co_return Answer{404, "application/json", problem("this is a key and not a message: oncekey keys shows it")};
  json::object body = job_json(id, *found->record, found->now);
  if (found->record->response) body["message"] = response_json(*found->record->response);
  co_return Answer{200, "application/json", json::serialize(body)};
}

Task<Admin::Answer> Admin::act_on_job(Exchange& exchange, std::string_view id_text, std::string_view action_text) {
  const bool retry = action_text == "retry";
  if (!retry && action_text != "drop")
    co_return Answer{404, "application/json", problem("the actions are retry and drop")};
  json::object given;
  if (auto refusal = co_await read_action(exchange, given)) co_return *std::move(refusal);
  RecordId id;
  const Result<Found> found = co_await find(id_text, id);
  if (!found) co_return Answer{status_of(found.fault()), "application/json", problem(found.fault().message)};
  const Record& record = *found->record;
  if (!record.staged)
    co_return Answer{404, "application/json", problem("this is a key and not a message: oncekey keys acts on it")};
  const bool kept = record.response && (!record.response->body.empty() || record.response->headers.size() != 0);
  if (retry && record.state == RecordState::completed && !kept) {
    co_return Answer{409, "application/json",
                     problem("its message was not kept (keep_delivered = false, or it was dropped)")};
  }
  if (retry && !has_endpoint(shared_.config(), record.route)) {
    co_return Answer{409, "application/json",
                     problem("nothing in this gateway's configuration is called \"" + record.route +
                             "\": it is delivered when that webhook or destination is configured again")};
  }
  StoredResponse dropped;
  dropped.status = record.response ? record.response->status : 0;
  dropped.reason = kDropped;
  const json::value* reason = given.if_contains("reason");
  const std::string why(reason->get_string().data(), reason->get_string().size());
  co_return co_await operate(exchange, id, retry ? OperatorAction::rerun : OperatorAction::complete, std::move(dropped),
                             action_text, why);
}

} // namespace oncekey
