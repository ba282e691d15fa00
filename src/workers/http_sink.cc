#include <oncekey/sinks.h>
#include <oncekey/workers.h>

#include "base/json_text.h"
#include "workers/concurrently.h"
#include "workers/http_post.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

namespace oncekey {
namespace {

// Statuses that say "not now" rather than "not this".
bool says_later(int status) { return status == 408 || status == 425 || status == 429 || status == 503; }
bool is_success(int status) { return status >= 200 && status < 300; }

// A server's error is the server's trouble or that of the one job it stumbles over, and so is an exchange that breaks
// off or times out, or a "not now". Were it always the server's, one such job would hold up all others for ever; were
// it always the job's, an outage would make dead letters of all. So the next ones are tried: if one gets through, it
// was the jobs' before it, and if so many in a row do not, the server's. A server that is slow or says "not now" is
// asked once more and no oftener.
constexpr std::size_t kSuspectsMax = 10;
constexpr std::size_t kNotNowMax = 2;
// Jobs that are remembered as tried in vain. Some will have been delivered by other enqueuers meanwhile.
constexpr std::size_t kTriedInVainMax = 10'000;

bool one_line(std::string_view text) { return text.find_first_of("\r\n") == std::string_view::npos; }

class HttpSink final : public Sink {
 public:
  HttpSink(PostUrl url, HttpSinkOptions options) : url_(std::move(url)), options_(std::move(options)) {}

  // "In a row" means in the order in which the answers came.
  SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) override {
    Round round;
    std::mutex mutex; // guards the round and what is remembered from round to round
    const std::vector<const Job*> ordered = in_order_of_hope(jobs);
    concurrently(options_.concurrency, ordered.size(), [&](std::size_t i) {
      if (turn.over()) return GoOn::no;
      Tried tried = try_one(*ordered[i]);
      const std::lock_guard lock(mutex);
      take(*ordered[i], std::move(tried), round);
      return round.report.down ? GoOn::no : GoOn::yes;
    });
    end(round);
    return std::move(round.report);
  }

 private:
  enum class Answer { accepted, refused, not_sent, stumbled, not_now, no_connection };
  struct Tried {
    Answer answer;
    std::string why;
  };
  struct Round {
    SinkReport report;
    std::vector<SinkReport::RefusedJob> suspects;
    std::size_t not_now = 0; // of the suspects
    bool anything_through = false;
  };

  // Those tried in vain when the sink was last given up come last: several such jobs at the front would otherwise be
  // all that is ever tried.
  std::vector<const Job*> in_order_of_hope(std::span<const Job> jobs) const {
    std::vector<const Job*> ordered;
    ordered.reserve(jobs.size());
    for (const Job& job : jobs) ordered.push_back(&job);
    std::stable_partition(ordered.begin(), ordered.end(),
                          [&](const Job* job) { return !tried_in_vain_.contains(job->id); });
    return ordered;
  }

  Tried try_one(const Job& job) const {
    if (!one_line(job.name)) return {Answer::not_sent, "the job's name has a line break and cannot be a header"};
    const auto status = http_post(url_, headers_of(job), job.args, {options_.connect_timeout, options_.answer_timeout});
    if (!status.ok()) {
      const bool connected = status.fault().kind == FaultKind::timeout;
      return {connected ? Answer::not_now : Answer::no_connection, status.fault().message};
    }
    std::string said = fmt::format("answered {}", *status);
    if (is_success(*status)) return {Answer::accepted, {}};
    if (says_later(*status)) return {Answer::not_now, std::move(said)};
    return {*status >= 500 ? Answer::stumbled : Answer::refused, std::move(said)};
  }

  void take(const Job& job, Tried tried, Round& round) {
    switch (tried.answer) {
      case Answer::accepted:
        got_through(round);
        tried_in_vain_.erase(job.id);
        round.report.accepted.push_back(job.id);
        break;
      case Answer::not_sent:
        round.report.refused.push_back({job.id, std::move(tried.why)});
        break;
      case Answer::refused:
        got_through(round);
        tried_in_vain_.erase(job.id);
        round.report.refused.push_back({job.id, std::move(tried.why)});
        break;
      case Answer::not_now:
      case Answer::stumbled:
        suspect(job, std::move(tried), round);
        break;
      case Answer::no_connection:
        round.report.down = std::move(tried.why);
        break;
    }
  }

  void suspect(const Job& job, Tried tried, Round& round) {
    // The second time in vain, while others got through: no further proof is needed.
    if (round.anything_through && tried_in_vain_.erase(job.id) != 0) {
      round.report.refused.push_back({job.id, std::move(tried.why)});
      return;
    }
    if (tried.answer == Answer::not_now) ++round.not_now;
    round.suspects.push_back({job.id, std::move(tried.why)});
    if (round.not_now >= kNotNowMax || round.suspects.size() >= kSuspectsMax) {
      round.report.down = round.suspects.back().why;
    }
  }

  static void got_through(Round& round) {
    round.anything_through = true;
    round.report.refused.insert(round.report.refused.end(), round.suspects.begin(), round.suspects.end());
    round.suspects.clear();
    round.not_now = 0;
  }

  // Whoever is still suspected has no successor that got through.
  void end(Round& round) {
    if (round.suspects.empty()) return;
    if (!round.report.down && round.anything_through && round.not_now == 0) {
      got_through(round);
      return;
    }
    if (!round.report.down) round.report.down = round.suspects.front().why;
    if (tried_in_vain_.size() >= kTriedInVainMax) tried_in_vain_.clear();
    for (const SinkReport::RefusedJob& suspect : round.suspects) tried_in_vain_.insert(suspect.id);
  }

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
  std::unordered_set<JobId> tried_in_vain_;
};

RunOutcome outcome_of(int status) {
  if (status == 202 || status == 409) return InProgress{};
  if (status == 410) return DeadLettered{};
  if (status == 404) {
    return NotDeclared{NotDeclared::Part::operation,
                       "the application answered 404: it does not know the operation or its recovery point, or it does "
                       "not resume operations under this URL"};
  }
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
    if (*status != 409 && *status != 410 && *status != 404 && (*status < 200 || *status >= 300)) {
      return unavailable(fmt::format("the application answered {}", *status));
    }
    return outcome_of(*status);
  });
}

} // namespace oncekey
