#include "admin/bulk_run.h"

#include "admin/job_pages.h"
#include "admin/record_json.h"
#include "base/enum_name.h"
#include "base/utf8.h"
#include "config/config.h"

#include <algorithm>
#include <array>
#include <set>

namespace oncekey {

namespace json = boost::json;
using namespace std::string_view_literals;

namespace {

std::string_view text_of(const json::value& value) {
  const json::string* const text = value.if_string();
  return text ? std::string_view(*text) : std::string_view();
}

json::array counts_json(const std::map<std::string, std::size_t>& counts, const char* name) {
  json::array all;
  for (const auto& [what, count] : counts) all.push_back(json::object{{name, as_utf8(what)}, {"count", count}});
  return all;
}

// A member that is passed over would select more jobs than were meant, and a job that is dropped stays dropped.
Status all_known(const json::object& filter) {
  constexpr std::array kMembers{"state"sv, "destination"sv, "older_than"sv, "newer_than"sv};
  for (const auto& each : filter) {
    const std::string_view name = each.key();
    if (std::ranges::find(kMembers, name) == kMembers.end())
      return invalid(
          fmt::format("filter: there is no \"{}\": expected state, destination, older_than or newer_than", name));
    if (!each.value().is_string()) return invalid(fmt::format("filter: {} is a text, as in \"{}\": \"…\"", name, name));
  }
  return ok_status();
}

} // namespace

std::chrono::milliseconds BulkRuns::pause_of(JobAction action, std::size_t jobs) {
  if (action == JobAction::drop || jobs < 2) return {};
  return std::min(kPauseMax, std::chrono::milliseconds(kSpread) / static_cast<int>(jobs));
}

Task<Result<BulkRuns::Selection>> BulkRuns::select_by_ids(const json::array& ids) {
  Selection selection;
  if (ids.size() > kIdsMax) co_return invalid(fmt::format("ids: at most {} at once; use a filter for more", kIdsMax));
  std::set<RecordId> seen;
  for (const json::value& each : ids) {
    const json::object* const versioned = each.if_object();
    const std::string_view text = versioned ? text_member(*versioned, "id") : text_of(each);
    const std::string_view version = versioned ? text_member(*versioned, "version") : "";
    const auto id = record_id_from_hex(text);
    if (!id || (versioned && version.empty()))
      co_return invalid(R"(ids: expected whole ids of 64 hex digits, or {"id": "…", "version": "…"}, as GET /api/jobs )"
                        "has them");
    if (!seen.insert(*id).second) continue;
    using Maybe = std::optional<FoundJob>;
    Result<Maybe> found =
        co_await await_store<Maybe>(loop_, [&](auto done) { shared_.store.jobs().find(*id, std::move(done)); });
    if (!found) co_return std::move(found).fault();
    if (!found->has_value()) {
      ++selection.skipped[std::string(why_not(JobAnswer::absent))];
    } else if (!version.empty() && version != version_of((*found)->job)) {
      ++selection.skipped[std::string(why_not(JobAnswer::changed))];
    } else {
      selection.jobs.push_back(std::move((*found)->job));
    }
  }
  co_return selection;
}

Task<Result<BulkRuns::Selection>> BulkRuns::select_by_filter(const json::object& filter) {
  Selection selection;
  if (const Status sound = all_known(filter); !sound) co_return sound.fault();
  const std::string_view state = text_member(filter, "state");
  if (!state.empty() && state != "dead" && state != "waiting")
    co_return invalid("filter: state is dead or waiting; a job that was delivered is retried by its id");
  JobListRequest request;
  request.state = state == "waiting" ? JobState::waiting : JobState::dead;
  request.route = text_member(filter, "destination");
  request.limit = kListMax;
  const Result<ReceivedBetween> received =
      received_between(text_member(filter, "older_than"), text_member(filter, "newer_than"), shared_.store.now());
  if (!received) co_return invalid("filter: " + received.fault().message);
  request.staged_from = received->from;
  request.staged_before = received->before;
  Result<JobPage> page =
      co_await await_store<JobPage>(loop_, [&](auto done) { shared_.store.jobs().list(request, std::move(done)); });
  if (!page) co_return std::move(page).fault();
  selection.jobs = std::move(page->jobs);
  // Oldest first, as they would have been delivered.
  std::sort(selection.jobs.begin(), selection.jobs.end(),
            [](const StoredJob& a, const StoredJob& b) { return a.staged_at < b.staged_at; });
  selection.capped = !page->whole;
  co_return selection;
}

Task<Result<BulkRuns::Selection>> BulkRuns::select(const PageRequest& asked, JobAction action) {
  const json::value* const ids = asked.given.if_contains("ids");
  const json::value* const filter = asked.given.if_contains("filter");
  const bool by_ids = ids != nullptr && ids->is_array();
  const bool by_filter = filter != nullptr && filter->is_object();
  if (by_ids == by_filter)
    co_return invalid(R"(say which jobs: either "ids": ["…"] or "filter": {"state": "dead", "destination": "…"})");
  Result<Selection> selection = Selection{};
  if (by_ids) {
    selection = co_await select_by_ids(ids->get_array());
  } else {
    selection = co_await select_by_filter(filter->get_object());
  }
  if (!selection) co_return selection;
  std::erase_if(selection->jobs, [&](const StoredJob& job) {
    if (action == JobAction::drop || has_endpoint(shared_.config(), job.route)) return false;
    ++selection->skipped[std::string(kNoSuchEndpoint)];
    return true;
  });
  co_return selection;
}

Task<PageAnswer> BulkRuns::begin(PageRequest& asked) {
  const JobAction action = *enum_named<JobAction>(asked.action);
  const json::value* const dry = asked.given.if_contains("dry_run");
  const bool dry_run = dry != nullptr && dry->get_bool();
  if (!dry_run && running_.load())
    co_return refused(409, "another run is under way: wait for its end, or stop it", "under_way");
  const Result<Selection> selection = co_await select(asked, action);
  if (!selection) {
    if (selection.fault().kind == FaultKind::invalid) co_return refused(400, selection.fault().message);
    co_return refused(503, selection.fault().message);
  }
  const std::size_t count = selection->jobs.size();
  if (dry_run) {
    std::map<std::string, std::size_t> destinations;
    for (const StoredJob& job : selection->jobs) ++destinations[job.route];
    const auto takes = std::chrono::duration_cast<std::chrono::seconds>(pause_of(action, count) * count);
    co_return json_answer({{"action", asked.action},
                           {"count", count},
                           {"capped", selection->capped},
                           {"cap", kJobsMax},
                           {"destinations", counts_json(destinations, "destination")},
                           {"skipped", counts_json(selection->skipped, "why")},
                           {"takes_seconds", takes.count()}});
  }
  const json::value* const confirm = asked.given.if_contains("confirm");
  json::error_code error;
  const std::uint64_t confirmed = confirm != nullptr ? confirm->to_number<std::uint64_t>(error) : 0;
  if (confirm == nullptr || error || confirmed < count) {
    co_return json_answer({{"error", fmt::format("confirm must be the number of jobs, which is {} now: look at them "
                                                 "again with \"dry_run\": true",
                                                 count)},
                           {"code", "confirm"},
                           {"count", count}},
                          422);
  }
  if (running_.exchange(true))
    co_return refused(409, "another run is under way: wait for its end, or stop it", "under_way");
  auto run = std::make_shared<Run>();
  run->id = fmt::format("{:08x}", static_cast<std::uint32_t>(random_u64()));
  run->action = action;
  run->who = asked.visitor.name();
  run->peer = asked.exchange.peer();
  run->reason = as_utf8(asked.text("reason"));
  run->started = wall_clock();
  run->jobs = selection->jobs;
  run->total = count;
  runs_.push_front(run);
  if (runs_.size() > kRunsShown) runs_.pop_back();
  audit_.note({run->started, run->who, fmt::format("{}_jobs", to_string(action)), "",
               fmt::format("run {} begun with {} jobs", run->id, count), run->reason, run->peer});
  spawn(this->run(run));
  co_return json_answer(run_json(*run), 202);
}

std::size_t BulkRuns::left_alone(const Run& run) {
  std::size_t all = 0;
  for (const auto& [why, count] : run.left_alone) all += count;
  return all;
}

Task<void> BulkRuns::act(Run& run, const StoredJob& job) {
  const Result<JobAnswer> answer = co_await await_store<JobAnswer>(loop_, [&](auto done) {
    shared_.store.jobs().operate(job.id, job.route, run.action, JobSeen{job.state, job.fence}, std::move(done));
  });
  if (!answer) {
    ++run.failed;
    run.last_fault = answer.fault().message;
  } else if (*answer == JobAnswer::done) {
    ++run.done;
  } else {
    ++run.left_alone[std::string(why_not(*answer))];
    co_return;
  }
  // After a fault the job may have changed: that is said too.
  audit_.note({wall_clock(), run.who, std::string(to_string(run.action)), to_hex(job.id),
               fmt::format("{} in run {}", result_word(answer), run.id), run.reason, run.peer});
}

Task<void> BulkRuns::run(std::shared_ptr<Run> run) {
  const std::chrono::milliseconds pause = pause_of(run->action, run->total);
  const MonotonicTime began = std::chrono::steady_clock::now();
  std::size_t number = 0;
  try {
    for (const StoredJob& job : run->jobs) {
      if (run->stop) break;
      co_await act(*run, job);
      // Due times, not pauses after each: writes take time as well.
      const MonotonicTime next = began + ++number * pause;
      while (!run->stop && number < run->total && std::chrono::steady_clock::now() < next) {
        co_await sleep_until(loop_, std::min<MonotonicTime>(next, std::chrono::steady_clock::now() + kTimerTick));
      }
      if (pause.count() == 0) co_await loop_.next_turn();
    }
  } catch (const std::exception& error) {
    run->last_fault = error.what(); // out of memory, say
    run->stop = true;
  }
  run->ended = wall_clock();
  run->jobs.clear();
  run->jobs.shrink_to_fit();
  audit_.note({*run->ended, run->who, fmt::format("{}_jobs", to_string(run->action)), "",
               fmt::format("run {} {} after {} of {} jobs; {} left alone, {} failed", run->id,
                           run->stop ? "stopped" : "ended", run->done, run->total, left_alone(*run), run->failed),
               run->reason, run->peer});
  running_ = false;
}

void BulkRuns::stop_all() {
  for (const auto& run : runs_) run->stop = run->stop || !run->ended;
}

json::object BulkRuns::run_json(const Run& run) const {
  return {{"id", run.id},
          {"action", json_text(to_string(run.action))},
          {"state", !run.ended ? "running"
                    : run.stop ? "stopped"
                               : "done"},
          {"who", run.who},
          {"reason", run.reason},
          {"started", iso_time(run.started)},
          {"ended", run.ended ? json::value(iso_time(*run.ended)) : json::value()},
          {"total", run.total},
          {"done", run.done},
          {"left_alone", left_alone(run)},
          {"left_alone_why", counts_json(run.left_alone, "why")},
          {"failed", run.failed},
          {"last_fault", run.last_fault.empty() ? json::value() : json::value(as_utf8(run.last_fault))}};
}

json::value BulkRuns::under_way() const {
  if (runs_.empty() || runs_.front()->ended) return nullptr;
  return run_json(*runs_.front());
}

PageAnswer BulkRuns::list() const {
  json::array all;
  for (const auto& run : runs_) all.push_back(run_json(*run));
  return json_answer({{"runs", std::move(all)}});
}

std::shared_ptr<BulkRuns::Run> BulkRuns::find(std::string_view id) const {
  const auto found = std::find_if(runs_.begin(), runs_.end(), [&](const auto& run) { return run->id == id; });
  return found == runs_.end() ? nullptr : *found;
}

PageAnswer BulkRuns::show(PageRequest& asked) const {
  const auto run = find(asked.id);
  if (!run)
    return refused(404, "no such run: it is older than the last runs that are remembered, or of another process");
  return json_answer(run_json(*run));
}

PageAnswer BulkRuns::stop(PageRequest& asked) {
  const auto run = find(asked.id);
  if (!run)
    return refused(404, "no such run: it is older than the last runs that are remembered, or of another process");
  if (run->ended) return refused(409, "the run has ended already");
  run->stop = true;
  audit_.note(asked.audit_line("", "stop_run", fmt::format("run {}", run->id)));
  return json_answer(run_json(*run));
}

} // namespace oncekey
