#include "cli/jobs_desk.h"

#include "admin/record_json.h"
#include "base/log.h"
#include "base/url.h"
#include "cli/admin_talk.h"

#include <oncekey/workers.h>

#include <fmt/format.h>
#include <boost/json.hpp>

#include <charconv>
#include <utility>

namespace oncekey {
namespace {

namespace json = boost::json;

class GatewayJobs final : public JobsDesk {
 public:
  explicit GatewayJobs(AdminClient client) : client_(std::move(client)) {}

  Result<AdminAnswer> list(const std::string& state, const std::string& endpoint, std::uint32_t limit) override {
    std::string query = fmt::format("/api/jobs?limit={}", limit);
    if (!state.empty()) query += "&state=" + state;
    if (!endpoint.empty()) query += "&destination=" + percent_encoded(endpoint);
    return client_.get(query);
  }
  Result<AdminAnswer> show(const std::string& id) override { return client_.get("/api/jobs/" + id); }
  Result<AdminAnswer> act(const std::string& id, const std::string& action, const std::string& reason) override {
    return client_.post(fmt::format("/api/jobs/{}/{}", id, action), json::serialize(json::object{{"reason", reason}}));
  }

 private:
  AdminClient client_;
};

AdminAnswer answer_of(int status, const json::object& body) {
  AdminAnswer answer;
  answer.status = status;
  answer.body = json::serialize(body);
  return answer;
}
AdminAnswer refusal(int status, std::string_view why) { return answer_of(status, {{"error", json::value(why)}}); }

json::object table_job_json(const TableJob& job) {
  json::object out;
  const auto time_or_null = [](bool there, Time time) { return there ? json::value(iso_time(time)) : json::value(); };
  out["id"] = std::to_string(job.job.id);
  out["state"] = json::value(to_string(job.state));
  out["destination"] = job.job.sink;
  out["key"] = job.job.name;
  out["attempts"] = job.job.attempts;
  out["last"] = job.last_error.empty() ? json::value() : json::value(job.last_error);
  out["why_dead"] = job.state == TableJobState::dead ? out["last"] : json::value();
  out["received"] = iso_time(job.job.staged_at);
  out["next_attempt"] = time_or_null(job.state == TableJobState::waiting, job.next_attempt);
  out["ended"] = time_or_null(job.state == TableJobState::dead, job.dead_since);
  return out;
}

class DatabaseJobs final : public JobsDesk {
 public:
  explicit DatabaseJobs(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  Result<AdminAnswer> list(const std::string& state, const std::string& endpoint, std::uint32_t limit) override {
    TableJobQuery query;
    query.sink = endpoint;
    query.limit = limit + 1;
    for (const TableJobState known : {TableJobState::waiting, TableJobState::taken, TableJobState::dead}) {
      if (to_string(known) == state) query.state = known;
    }
    if (!state.empty() && !query.state) return refusal(400, "delivered and dropped jobs of a database are deleted");
    const auto jobs = list_jobs(*database_, query);
    if (!jobs) return jobs.fault();
    json::array lines;
    for (const TableJob& job : *jobs) {
      if (lines.size() < limit) lines.push_back(table_job_json(job));
    }
    return answer_of(200, {{"jobs", std::move(lines)}, {"more", jobs->size() > limit}});
  }
  Result<AdminAnswer> show(const std::string& id) override {
    const auto job = find(id);
    if (!job) return job.fault();
    if (!*job) return refusal(404, kNone);
    json::object body = table_job_json(**job);
    Message message;
    message.method = (*job)->job.name;
    message.body = (*job)->job.args;
    body["message"] = message_json(message);
    return answer_of(200, body);
  }
  Result<AdminAnswer> act(const std::string& id, const std::string& action, const std::string& reason) override {
    const auto job = find(id);
    if (!job) return job.fault();
    if (!*job) return refusal(404, kNone);
    const JobId number = (*job)->job.id;
    const auto done = action == "retry" ? retry_job(*database_, number) : drop_job(*database_, number);
    if (!done) return done.fault();
    Log(LogLevel::info)
        .always("operator_action",
                {{"action", action}, {"id", id}, {"result", *done ? "done" : "refused"}, {"reason", reason}});
    if (!*done) return refusal(409, "an enqueuer delivers it at this moment: try again when the attempt has ended");
    return answer_of(200, {{"id", id}, {"action", action}, {"result", "done"}});
  }

 private:
  static constexpr std::string_view kNone = "no such job; it may have been delivered";

  Result<std::optional<TableJob>> find(const std::string& id) {
    TableJobQuery query;
    query.id.emplace();
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), *query.id);
    if (error != std::errc{} || end != id.data() + id.size() || *query.id <= 0) return std::optional<TableJob>();
    auto jobs = list_jobs(*database_, query);
    if (!jobs) return std::move(jobs).fault();
    return jobs->empty() ? std::nullopt : std::optional(std::move(jobs->front()));
  }

  std::unique_ptr<Database> database_;
};

} // namespace

std::unique_ptr<JobsDesk> jobs_of_gateway(AdminClient client) {
  return std::make_unique<GatewayJobs>(std::move(client));
}
std::unique_ptr<JobsDesk> jobs_of_database(std::unique_ptr<Database> database) {
  return std::make_unique<DatabaseJobs>(std::move(database));
}

} // namespace oncekey
