#include "admin/store_pages.h"

#include "base/durations.h"
#include "base/enum_name.h"
#include "base/masked_url.h"
#include "core/job_store.h"
#include "gateway/await_store.h"

#include <pthread.h>

namespace oncekey {

namespace json = boost::json;

json::object backup_json(const BackupState& state) {
  json::object body{{"state", enum_name(state.phase)}};
  if (state.phase == BackupPhase::none) return body;
  body["to"] = state.to;
  body["bytes"] = state.done;
  body["bytes_total"] = state.total;
  if (!state.error.empty()) body["error"] = state.error;
  if (state.made) {
    body["store"] = state.made->store;
    body["sequence"] = state.made->sequence;
    body["made"] = iso_time(state.made->made);
    body["in_progress"] = state.made->in_progress;
    body["files"] = state.made->files;
    body["bytes"] = state.made->bytes;
  }
  return body;
}

Backups::~Backups() {
  stop();
  if (thread_.joinable()) thread_.join();
}

Status Backups::begin(const std::string& to) {
  const std::lock_guard lock(mutex_);
  if (stopping_.load()) return Fault{FaultKind::conflict, "the gateway is stopping"};
  if (running_.exchange(true))
    return Fault{FaultKind::conflict, fmt::format("a backup to {} is being made", state_.to)};
  if (thread_.joinable()) thread_.join(); // of the one before, which is over
  state_ = {BackupPhase::running, to};
  thread_ = std::thread([this, to] {
    pthread_setname_np(pthread_self(), "backup");
    run(to);
  });
  return ok_status();
}

BackupState Backups::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Backups::run(const std::string& to) {
  const Result<BackupMade> made = store_.back_up(to, [this](std::uint64_t done, std::uint64_t total) {
    const std::lock_guard lock(mutex_);
    state_.done = done;
    state_.total = total;
    return !stopping_.load();
  });
  if (made) {
    log_.always("backup_made", {{"folder", to}, {"sequence", made->sequence}, {"bytes", made->bytes}});
  } else {
    log_.error("backup_failed", {{"folder", to}, {"reason", made.fault().message}});
  }
  {
    const std::lock_guard lock(mutex_);
    state_.phase = made ? BackupPhase::done : BackupPhase::failed;
    if (made) state_.made = *made;
    if (!made) state_.error = made.fault().message;
  }
  running_.store(false);
}

Task<PageAnswer> StorePages::show() {
  const StoreStats stats = shared_.store.stats();
  const StoreDetails details = shared_.store.details();
  const Status healthy = shared_.store.healthy();
  json::object body{{"store", masked_url(shared_.config().store)},
                    {"durability", to_string(shared_.store.durability())},
                    {"takes_claims", healthy.ok()}};
  if (!healthy) body["reason"] = healthy.fault().message;
  body["records"] = stats.records_estimate;
  body["bytes_on_disk"] = stats.bytes_on_disk;
  body["bytes_in_memory"] = stats.bytes_in_memory;
  if (!details.id.empty()) {
    body["id"] = details.id;
    body["newest_sequence"] = details.newest_sequence;
    body["log_segments"] = details.log_segments;
  }
  json::array buckets;
  for (const StoreBucket& bucket : details.buckets) {
    buckets.push_back(json::object{{"name", bucket.name},
                                   {"holds", bucket.holds},
                                   {"ends", iso_time(bucket.ends)},
                                   {"records", bucket.records},
                                   {"bytes", bucket.bytes}});
  }
  body["buckets"] = std::move(buckets);
  const auto waiting =
      co_await await_store<WaitingKeys>(loop_, [&](auto done) { shared_.store.count_waiting(std::move(done)); });
  if (waiting)
    body["waiting"] = json::object{{"abandoned", waiting->abandoned}, {"indeterminate", waiting->indeterminate}};
  using Counts = std::vector<JobCount>;
  const auto jobs =
      co_await await_store<Counts>(loop_, [&](auto done) { shared_.store.jobs().count(std::move(done)); });
  json::array counted;
  if (jobs) {
    for (const JobCount& count : *jobs) {
      counted.push_back(
          json::object{{"destination", count.route}, {"state", enum_name(count.state)}, {"jobs", count.count}});
    }
  }
  body["jobs"] = std::move(counted);
  co_return json_answer(body);
}

PageAnswer StorePages::begin_backup(PageRequest& asked) {
  const std::string to(asked.text("to"));
  if (!to.starts_with('/')) {
    return refused(400,
                   "\"to\" must be an absolute path, of a folder that does not exist yet, on the gateway's machine");
  }
  const Status begun = backups_.begin(to);
  audit_.note(asked.audit_line("", "backup", begun ? fmt::format("begun to {}", to) : "refused"));
  if (!begun) return refused(409, begun.fault().message);
  return json_answer(backup_json(backups_.state()), 202);
}

} // namespace oncekey
