#include "base/backoff.h"
#include "phases/operation_rows.h"
#include "workers/concurrently.h"
#include "workers/worker_loop.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

// The pauses after the first attempt, the second and so on, as the statement that picks wants them.
std::string pause_list(Dialect dialect, const CompleterOptions& options) {
  const double chance = random_chance();
  std::vector<std::int64_t> pauses;
  for (std::uint32_t attempt = 1; pauses.size() < static_cast<std::size_t>(std::max(1, options.attempts_max));
       ++attempt)
    pauses.push_back(pause_after(attempt, options.backoff_first, options.backoff_max, chance).count());
  return phases::id_list(dialect, pauses);
}

Status run_command(Database& database, const phases::Command& command) {
  auto rows = ask(database, command);
  if (!rows.ok()) return std::move(rows).fault();
  return ok_status();
}

// The last operation picked. The next pick starts behind it, so that one run_once takes each operation once.
struct PickedUpTo {
  std::int64_t first_received = 0;
  std::string id;
};

Result<std::optional<UnfinishedOperation>> pick(Database& database, const CompleterOptions& options,
                                                const std::string& names, PickedUpTo& place) {
  const std::string pauses = pause_list(database.dialect(), options);
  auto rows = ask(database, {phases::kPickAbandoned,
                             {std::int64_t{options.grace.count()}, std::string_view(pauses), place.first_received,
                              Bytes{place.id}, std::string_view(names)}});
  if (!rows.ok()) return std::move(rows).fault();
  if (rows->rows.empty()) return std::optional<UnfinishedOperation>{};
  auto row = phases::operation_of_row(rows->rows[0]);
  if (!row.ok()) return std::move(row).fault();
  place = {row->first_received.time_since_epoch().count(), std::string(phases::as_bytes(row->id.bytes))};
  return std::optional(phases::unfinished_of(*row));
}

// How resuming it ended; a fault if it threw.
Result<RunOutcome> attempt(const Completer::Resume& resume, const UnfinishedOperation& operation) {
  std::optional<Result<RunOutcome>> outcome;
  if (auto why = thrown_by([&] { outcome = resume(operation); })) return unavailable(*std::move(why));
  return *std::move(outcome);
}

std::map<std::string, Completer::Resume> resumed_by(Runner& runner) {
  std::map<std::string, Completer::Resume> by_name;
  for (const std::string& name : runner.operation_names()) {
    by_name[name] = [&runner](const UnfinishedOperation& operation) { return runner.resume(operation.id); };
  }
  return by_name;
}

class CompleterLoop final : public CountingLoop<CompleterCounts> {
 public:
  CompleterLoop(Database& database, std::map<std::string, Completer::Resume> resume_by_name, CompleterOptions options)
      : CountingLoop(options.idle_wait),
        database_(database),
        resume_by_name_(std::move(resume_by_name)),
        options_(options) {
    std::vector<std::string> names;
    for (const auto& [name, resume] : resume_by_name_) names.push_back(name);
    names_ = phases::text_list(names);
  }

  Result<CompleterCounts> run_once() override;
  // Without rounds: an operation that takes long keeps one thread busy, and the others take what falls due meanwhile.
  void run() override;

 private:
  // What the threads of one run_once share.
  struct Round {
    std::mutex mutex;
    CompleterCounts counts;
    PickedUpTo place;
    Status done = ok_status();
    bool nothing_left = false;
  };

  bool turn() override;
  std::optional<UnfinishedOperation> look();
  std::optional<UnfinishedOperation> next(Round& round);
  void work(Round& round);
  void finish(Round& round, const UnfinishedOperation& operation);
  Status complete(const UnfinishedOperation& operation, CompleterCounts& counts);

  Database& database_;
  const std::map<std::string, Completer::Resume> resume_by_name_;
  std::string names_; // the operations' names, in the form that kPickAbandoned takes
  const CompleterOptions options_;
  std::mutex looking_; // held by the thread of run() that looks for work, also while it sleeps: one asks the database
  PickedUpTo place_;   // of that thread
};

void CompleterLoop::run() {
  std::vector<std::jthread> others;
  const std::size_t wanted = std::max<std::size_t>(options_.concurrency, 1) - 1;
  report("threads", start_threads(
                        others, wanted, [this] { Impl::run(); }, StartThread{}));
  Impl::run();
}

bool CompleterLoop::turn() {
  const auto found = look();
  if (!found) return true; // it is to stop
  CompleterCounts counts;
  counts.picked = 1;
  auto done = complete(*found, counts);
  (void)ended(counts, std::move(done)); // it has told of a fault; the next look meets it again, and waits
  return true;
}

// Waits for an operation that is due. Nothing when it is to stop.
std::optional<UnfinishedOperation> CompleterLoop::look() {
  const std::lock_guard lock(looking_);
  for (; !stopping(); pause()) {
    auto picked = pick(database_, options_, names_, place_);
    if (picked.ok() && picked->has_value()) return *std::move(picked);
    place_ = {};
    (void)ended({}, picked.ok() ? ok_status() : Status(std::move(picked).fault()));
  }
  return std::nullopt;
}

Result<CompleterCounts> CompleterLoop::run_once() {
  Round round;
  {
    std::vector<std::jthread> others;
    // Most of the time there is nothing to do, and no thread is needed to find that out.
    if (const auto first = next(round)) {
      const std::size_t wanted = std::min(options_.concurrency, options_.batch);
      report("threads", start_threads(
                            others, wanted == 0 ? 0 : wanted - 1, [this, &round] { work(round); }, StartThread{}));
      finish(round, *first);
      work(round);
    }
  }
  return ended(round.counts, std::move(round.done));
}

// The next operation, picked by one thread at a time; nothing when the round is over.
std::optional<UnfinishedOperation> CompleterLoop::next(Round& round) {
  const std::lock_guard lock(round.mutex);
  const bool over = round.nothing_left || !round.done.ok() || stopping();
  if (over || (round.counts.picked != 0 && round.counts.picked >= options_.batch)) return std::nullopt;
  auto picked = pick(database_, options_, names_, round.place);
  if (!picked.ok()) {
    round.done = std::move(picked).fault();
    return std::nullopt;
  }
  round.nothing_left = !picked->has_value();
  if (!round.nothing_left) ++round.counts.picked;
  return *std::move(picked);
}

// Completes one operation after another, beside the other threads.
void CompleterLoop::work(Round& round) {
  while (const auto operation = next(round)) finish(round, *operation);
}

void CompleterLoop::finish(Round& round, const UnfinishedOperation& operation) {
  CompleterCounts counts;
  auto done = complete(operation, counts);
  const std::lock_guard lock(round.mutex);
  round.counts += counts;
  if (!done.ok() && round.done.ok()) round.done = std::move(done);
}

Status CompleterLoop::complete(const UnfinishedOperation& operation, CompleterCounts& counts) {
  const Bytes id{phases::as_bytes(operation.id.bytes)};
  const auto bury = [&](const std::string& last_error) {
    ++counts.dead;
    const std::string why = fmt::format("Given up after {} attempts. The last error: {}", options_.attempts_max,
                                        last_error.empty() ? "none was told" : last_error);
    return run_command(database_,
                       {phases::kBuryUnowned, {id, std::string_view(why), std::int64_t{options_.attempts_max}}});
  };
  // The last attempt was counted and never ended: its process died.
  if (operation.attempts > options_.attempts_max) return bury(operation.last_error);
  const std::string what = "resuming " + operation.operation;
  const auto outcome = attempt(resume_by_name_.at(operation.operation), operation);
  if (!outcome.ok()) {
    ++counts.failed;
    const std::string why = error_text(outcome.fault().message);
    report(what, why);
    if (operation.attempts == options_.attempts_max) return bury(why);
    return run_command(database_, {phases::kNoteError, {id, std::string_view(why)}});
  }
  if (const auto* const unknown = std::get_if<NotDeclared>(&*outcome)) {
    ++counts.unknown;
    const std::string why = error_text(unknown->why);
    report(what, why);
    return run_command(database_, {phases::kNoAttempt, {id, std::string_view(why), std::int64_t{operation.attempts}}});
  }
  report(what, std::nullopt);
  if (std::holds_alternative<Finished>(*outcome)) {
    ++counts.finished;
  } else if (std::holds_alternative<DeadLettered>(*outcome)) {
    ++counts.dead;
  } else {
    ++counts.not_yet;
  }
  return ok_status();
}

} // namespace

CompleterCounts& CompleterCounts::operator+=(const CompleterCounts& other) {
  using C = CompleterCounts;
  return add_counts(*this, other, {&C::picked, &C::finished, &C::not_yet, &C::failed, &C::dead, &C::unknown});
}

Completer::Completer(Runner& runner, CompleterOptions options)
    : Completer(runner.database(), resumed_by(runner), options) {}

Completer::Completer(Database& database, std::map<std::string, Resume> resume_by_name, CompleterOptions options)
    : BackgroundWorker(std::make_unique<CompleterLoop>(database, std::move(resume_by_name), options)) {}

Result<CompleterCounts> Completer::run_once() { return static_cast<CompleterLoop&>(*impl_).run_once(); }
CompleterCounts Completer::metrics() const { return static_cast<CompleterLoop&>(*impl_).metrics(); }

} // namespace oncekey
