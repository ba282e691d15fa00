#include <oncekey/sinks.h>
#include <oncekey/workers.h>

#include "core/json_text.h"
#include "workers/http_post.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

// Statuses that say "not now" rather than "not this".
bool says_later(int status) { return status == 408 || status == 425 || status == 429 || status == 503; }
bool is_success(int status) { return status >= 200 && status < 300; }

// A server's error is the server's trouble or that of the one job it stumbles over. Were it always the server's, one
// such job would hold up all others for ever; were it always the job's, an outage would make dead letters of all. So
// the next ones are tried: if one gets through, it was the jobs' before it, and if so many in a row do not, the
// server's.
constexpr std::size_t kSuspectsMax = 10;

bool one_line(std::string_view text) { return text.find_first_of("\r\n") == std::string_view::npos; }

class HttpSink final : public Sink {
 public:
  HttpSink(PostUrl url, HttpSinkOptions options) : url_(std::move(url)), options_(std::move(options)) {}

  SinkReport deliver(std::span<const Job> jobs, std::chrono::steady_clock::time_point until) override {
    SinkReport report;
    std::vector<SinkReport::RefusedJob> suspects;
    const auto blame_suspects = [&] {
      report.refused.insert(report.refused.end(), suspects.begin(), suspects.end());
      suspects.clear();
    };
    bool anything_through = false;
    for (const Job& job : jobs) {
      if (std::chrono::steady_clock::now() >= until) break;
      if (!one_line(job.name)) {
        report.refused.push_back({job.id, "the job's name has a line break and cannot be a header"});
        continue;
      }
      const auto status =
          http_post(url_, headers_of(job), job.args, {options_.connect_timeout, options_.answer_timeout});
      if (!status.ok()) {
        report.down = status.fault().message;
        return report;
      }
      const std::string said = fmt::format("answered {}", *status);
      if (*status >= 500 && !says_later(*status)) suspects.push_back({job.id, said});
      if (says_later(*status) || suspects.size() >= kSuspectsMax) {
        report.down = said;
        return report;
      }
      if (*status >= 500) continue;
      anything_through = true;
      blame_suspects();
      if (is_success(*status)) {
        report.accepted.push_back(job.id);
      } else {
        report.refused.push_back({job.id, said});
      }
    }
    if (anything_through) {
      blame_suspects();
    } else if (!suspects.empty()) {
      report.down = suspects.front().why;
    }
    return report;
  }

 private:
  Headers headers_of(const Job& job) const {
    Headers headers;
    headers.add("Idempotency-Key", fmt::format("{}", job.id));
    headers.add("Content-Type", options_.content_type);
    headers.add("Oncekey-Job", job.name);
    headers.add("Oncekey-Attempt", fmt::format("{}", job.attempts + 1));
    if (!options_.authorization.empty()) headers.add("Authorization", options_.authorization);
    return headers;
  }

  const PostUrl url_;
  const HttpSinkOptions options_;
};

RunOutcome outcome_of(int status) {
  if (status == 202 || status == 409) return InProgress{};
  return Finished{}; // the application keeps the answer; the completer has no use for it
}

Status check_options(const HttpSinkOptions& options) {
  if (one_line(options.authorization) && one_line(options.content_type)) return ok_status();
  return invalid("a header value has a line break");
}

} // namespace

Result<std::unique_ptr<Sink>> http_sink(std::string_view url, HttpSinkOptions options) {
  auto parsed = parse_post_url(url);
  if (!parsed.ok()) return std::move(parsed).fault();
  if (auto good = check_options(options); !good.ok()) return std::move(good).fault();
  return std::unique_ptr<Sink>(std::make_unique<HttpSink>(std::move(parsed).value(), std::move(options)));
}

Result<Completer::Resume> resume_by_http(std::string_view url, HttpSinkOptions options) {
  auto parsed = parse_post_url(url);
  if (!parsed.ok()) return std::move(parsed).fault();
  if (auto good = check_options(options); !good.ok()) return std::move(good).fault();
  return Completer::Resume([url = std::move(parsed).value(),
                            options = std::move(options)](const UnfinishedOperation& operation) -> Result<RunOutcome> {
    const std::string id = to_hex(operation.id);
    std::string body = "{\"operation\":";
    append_json_string(body, operation.operation);
    body += fmt::format(",\"id\":\"{}\"}}", id);
    Headers headers;
    headers.add("Idempotency-Key", id);
    headers.add("Content-Type", "application/json");
    if (!options.authorization.empty()) headers.add("Authorization", options.authorization);
    const auto status = http_post(url, headers, body, {options.connect_timeout, options.answer_timeout});
    if (!status.ok()) return status.fault();
    if (*status != 409 && (*status < 200 || *status >= 300)) {
      return unavailable(fmt::format("the application answered {}", *status));
    }
    return outcome_of(*status);
  });
}

} // namespace oncekey
