#include <oncekey/workers.h>

#include "base/json_text.h"
#include "core/judge.h"
#include "http/fetch.h"
#include "workers/concurrently.h"

#include <fmt/format.h>

#include <mutex>
#include <unordered_set>

namespace oncekey {
namespace {

// A failed exchange may be the receiver's fault or that of the one job it fails for. Blaming the receiver each time
// lets one such job hold up all others for ever; blaming the job each time makes dead letters of all jobs in an outage.
// So the next jobs are tried: if one of them gets through, the jobs before it are to blame, and if this many in a row
// do not, the receiver is. A receiver that is slow or says "not now" is asked once more and no oftener.
constexpr std::size_t kSuspectsMax = 10;
constexpr std::size_t kNotNowMax = 2;
// Jobs that are remembered as tried in vain. Some will have been delivered by other enqueuers meanwhile.
constexpr std::size_t kTriedInVainMax = 10'000;
// A sink has no use for the body of an answer.
constexpr AnswerLimit kAnswerLimit{64u << 10, AnswerLimit::Longer::is_cut};

bool one_line(std::string_view text) { return text.find_first_of("\r\n") == std::string_view::npos; }

// Where jobs or resumed operations are POSTed.
struct Receiver {
  static Result<Receiver> open(std::string_view url, HttpSinkOptions options) {
    auto parsed = parse_url(url);
    if (!parsed.ok()) return std::move(parsed).fault();
    if (!one_line(options.authorization) || !one_line(options.content_type))
      return invalid("authorization and content_type: expected a header value without line breaks");
    auto fetcher = Fetcher::open(options.ca_file, kAnswerLimit);
    if (!fetcher.ok()) return std::move(fetcher).fault();
    return Receiver{std::move(parsed).value(), std::move(fetcher).value(), std::move(options)};
  }

  Fetched post(std::string_view key, std::string_view content_type, const Headers& more, std::string_view body) const {
    FetchRequest request{"POST", url, {}, body};
    request.headers.add("Idempotency-Key", key);
    request.headers.add("Content-Type", content_type);
    for (std::size_t i = 0; i < more.size(); ++i) request.headers.add(more[i].name, more[i].value);
    if (!options.authorization.empty()) request.headers.add("Authorization", options.authorization);
    return fetcher->fetch(request, std::chrono::steady_clock::now() + options.timeout);
  }

  Url url;
  std::unique_ptr<Fetcher> fetcher;
  HttpSinkOptions options;
};

class HttpSink final : public Sink {
 public:
  explicit HttpSink(Receiver receiver) : receiver_(std::move(receiver)) {}

  // "In a row" means in the order in which the answers came.
  SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) override {
    Round round;
    std::mutex mutex; // guards the round and what is remembered from round to round
    const std::vector<const Job*> ordered = in_order_of_hope(jobs);
    concurrently(receiver_.options.concurrency, ordered.size(), [&](std::size_t i) {
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
  enum class Ending { accepted, failed, not_sent, no_connection };
  struct Tried {
    Ending ending;
    std::string why;
    Suspect suspect = Suspect::receiver; // of one that failed
    bool for_good = false;
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
    if (!one_line(job.name)) return {Ending::not_sent, "the job's name has a line break and cannot be a header"};
    Headers about;
    about.add("Oncekey-Job", job.name);
    about.add("Oncekey-Attempt", fmt::format("{}", job.attempts + 1));
    const Fetched fetched = receiver_.post(fmt::format("{}", job.id), receiver_.options.content_type, about, job.args);
    if (const auto* const failure = std::get_if<FetchFailure>(&fetched)) {
      const bool sent = failure->kind == FetchFailure::Kind::unknown;
      return {sent ? Ending::failed : Ending::no_connection, failure->reason};
    }
    const int status = std::get<FetchedAnswer>(fetched).status;
    const StatusMeaning& meaning = meaning_of(status);
    if (meaning.delivery == Judgement::success) return {Ending::accepted, {}};
    return {Ending::failed, fmt::format("answered {}", status), meaning.suspect,
            meaning.delivery == Judgement::refusal};
  }

  void take(const Job& job, Tried tried, Round& round) {
    switch (tried.ending) {
      case Ending::accepted:
        got_through(round);
        tried_in_vain_.erase(job.id);
        round.report.accepted.push_back(job.id);
        break;
      case Ending::not_sent:
        round.report.refused.push_back({job.id, std::move(tried.why)});
        break;
      case Ending::failed:
        if (tried.suspect != Suspect::message) return suspect(job, std::move(tried), round);
        got_through(round);
        tried_in_vain_.erase(job.id);
        round.report.refused.push_back({job.id, std::move(tried.why), tried.for_good});
        break;
      case Ending::no_connection:
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
    if (tried.suspect == Suspect::receiver) ++round.not_now;
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

  // After the jobs that are still suspected, none got through.
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

  const Receiver receiver_;
  std::unordered_set<JobId> tried_in_vain_;
};

Result<RunOutcome> outcome_of(int status) {
  if (status == 202 || status == 409) return RunOutcome(InProgress{});
  if (status == 410) return RunOutcome(DeadLettered{});
  if (status == 404) {
    return RunOutcome(
        NotDeclared{NotDeclared::Part::operation,
                    "the application answered 404: it does not know the operation or its recovery point, or it does "
                    "not resume operations under this URL"});
  }
  if (status < 200 || status >= 300) return unavailable(fmt::format("the application answered {}", status));
  return RunOutcome(Finished{}); // the application keeps the answer; the completer has no use for it
}

} // namespace

Result<std::unique_ptr<Sink>> http_sink(std::string_view url, HttpSinkOptions options) {
  auto receiver = Receiver::open(url, std::move(options));
  if (!receiver.ok()) return std::move(receiver).fault();
  return std::unique_ptr<Sink>(std::make_unique<HttpSink>(std::move(receiver).value()));
}

Result<Completer::Resume> resume_by_http(std::string_view url, HttpSinkOptions options) {
  auto opened = Receiver::open(url, std::move(options));
  if (!opened.ok()) return std::move(opened).fault();
  const auto receiver = std::make_shared<Receiver>(std::move(opened).value());
  return Completer::Resume([receiver](const UnfinishedOperation& operation) -> Result<RunOutcome> {
    const std::string id = to_hex(operation.id);
    std::string body = "{\"operation\":";
    append_json_string(body, operation.operation);
    body += fmt::format(",\"id\":\"{}\"}}", id);
    const Fetched fetched = receiver->post(id, "application/json", {}, body);
    if (const auto* const failure = std::get_if<FetchFailure>(&fetched)) return unavailable(failure->reason);
    return outcome_of(std::get<FetchedAnswer>(fetched).status);
  });
}

} // namespace oncekey
