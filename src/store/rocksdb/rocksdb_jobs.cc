#include "store/rocksdb/rocksdb_jobs.h"

#include "core/record_codec.h"

#include <memory>
#include <utility>

namespace oncekey {
namespace {

Result<std::vector<TakenJob>> with_messages(const JobTable& table, Result<std::vector<TakenJob>> taken) {
  if (!taken) return taken;
  for (TakenJob& job : *taken) {
    Result<std::optional<Message>> message = table.message(job.job.id);
    if (message && *message) {
      job.message = **std::move(message);
    } else {
      job.unreadable = message ? corrupt("its message is gone") : std::move(message).fault();
    }
  }
  return taken;
}

} // namespace

void RocksdbJobs::stage(StageRequest request, Done<StageAnswer> done) {
  if (const Status health = writer_.healthy(); !health) return done(health.fault());
  const Result<std::optional<JobTable::Place>> found = table_.lookup(request.id);
  if (!found) return done(found.fault());
  if (*found && !(*found)->job.expired(clock_.now())) return done(StageAnswer{false, (*found)->job.fingerprint});
  if (const Status may = may_stage_(); !may) return done(may.fault());
  std::string message;
  encode_message(request.message, message);
  request.message = Message{};
  const std::size_t bytes = message.size();
  auto apply = [request = std::move(request), message = std::move(message)](JobTable& table, JobBatch& batch) {
    return table.stage(request, message, batch);
  };
  change<StageAnswer>(std::move(done), std::move(apply), bytes);
}

void RocksdbJobs::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  const Time now = clock_.now();
  // The usual answer costs no thread a wake-up.
  if (table_.index().due(request, now).empty()) return done(std::vector<TakenJob>{});
  change<std::vector<TakenJob>>(
      [this, done = std::move(done)](Result<std::vector<TakenJob>> taken) {
        done(with_messages(table_, std::move(taken)));
      },
      [request](JobTable& table, JobBatch& batch) { return table.take(request, batch); });
}

void RocksdbJobs::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  change<FenceAnswer>(std::move(done), [owner, end = std::move(end)](JobTable& table, JobBatch& batch) {
    return table.end_attempt(owner, end, batch);
  });
}

void RocksdbJobs::find(const RecordId& id, Done<std::optional<FoundJob>> done) {
  if (const Status health = writer_.healthy(); !health) return done(health.fault());
  Result<std::optional<JobTable::Place>> found = table_.lookup(id);
  if (!found) return done(std::move(found).fault());
  const Time now = clock_.now();
  if (!*found || (*found)->job.expired(now)) return done(std::optional<FoundJob>{});
  FoundJob answer{std::move((*found)->job), std::nullopt, now};
  if (answer.job.message_kept) {
    Result<std::optional<Message>> message = table_.message(id);
    if (message) {
      answer.message = *std::move(message);
    } else {
      answer.unreadable = std::move(message).fault();
    }
  }
  done(std::optional(std::move(answer)));
}

void RocksdbJobs::operate(const RecordId& id, const std::string& /*route*/, JobAction action, Done<JobAnswer> done) {
  change<JobAnswer>(std::move(done),
                    [id, action](JobTable& table, JobBatch& batch) { return table.operate(id, action, batch); });
}

void RocksdbJobs::list(const JobListRequest& request, Done<JobPage> done) {
  if (const Status health = writer_.healthy(); !health) return done(health.fault());
  done(table_.list(request, clock_.now()));
}

void RocksdbJobs::count(Done<std::vector<JobCount>> done) {
  if (table_.index().expired(clock_.now(), 1).empty()) return done(table_.index().count());
  using Counts = std::vector<JobCount>;
  change<Counts>(std::move(done), [](JobTable& table, JobBatch& batch) -> Result<Counts> {
    if (const Status forgotten = table.forget_expired(batch); !forgotten) return forgotten.fault();
    return table.index().count();
  });
}

} // namespace oncekey
