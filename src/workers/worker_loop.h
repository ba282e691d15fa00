// worker_loop: the inside of a BackgroundWorker: the loop of run(), its end, and what is failing at present; and the
// steps that the workers share.
#pragma once

#include "phases/engine.h"

#include <oncekey/workers.h>

namespace oncekey {

// The message of a sink or an exception, in a form that every database can keep: at most a thousand bytes, cut between
// characters. Bytes that are not UTF-8 or not visible become question marks.
//
// The message comes from outside: a server's answer in any encoding, an exception's bytes. Postgres refuses text that
// is not valid UTF-8, and with it the statement that records what became of a whole batch.
std::string error_text(std::string_view said);

// Adds up the counts of two runs, member by member.
template <class Counts>
Counts& add_counts(Counts& sum, const Counts& more, std::initializer_list<std::uint64_t Counts::*> members) {
  for (const auto member : members) sum.*member += more.*member;
  return sum;
}

// What the commands answer, run in one transaction on a session of the pool.
Result<std::vector<SqlRows>> transact(Database& database, std::span<const phases::Command> commands);
Result<SqlRows> ask(Database& database, const phases::Command& command);

struct BackgroundWorker::Impl {
  explicit Impl(Millis idle_wait) : idle_wait_(idle_wait) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  virtual void run() {
    repeat([this] { return turn(); });
  }
  void stop();
  bool stopping() const;
  void on_trouble(TroubleObserver observer) { observer_ = std::move(observer); }
  std::map<std::string, std::string> troubles() const;

 protected:
  // Whether the next turn is to come at once.
  virtual bool turn() = 0;
  // Takes turns until stop(), with a pause after each that found nothing or failed.
  void repeat(const std::function<bool()>& turn);
  // Waits as long as run() sleeps when there is nothing to do, or for stop().
  void pause();
  // Why something fails; nothing if it works.
  void report(const std::string& what, const std::optional<std::string>& why);

 private:
  const Millis idle_wait_;
  std::mutex observer_mutex_; // locked before mutex_, so that the observer hears of one change at a time
  TroubleObserver observer_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::map<std::string, std::string> troubles_;
};

// The inside of a worker that counts what its runs did.
template <class Counts>
class CountingLoop : public BackgroundWorker::Impl {
 public:
  using Impl::Impl;
  virtual Result<Counts> run_once() = 0;
  Counts metrics() const {
    const std::lock_guard lock(metrics_mutex_);
    return total_;
  }

 protected:
  // Whether there is probably more to do after a run that did this.
  virtual bool more(const Counts&) const { return false; }
  bool more_after(const Result<Counts>& run) const { return run.ok() && more(*run); }
  bool turn() override { return more_after(run_once()); }

  // The end of a run: counts it and reports whether the database failed. The result of run_once().
  Result<Counts> ended(const Counts& counts, Status done) {
    {
      const std::lock_guard lock(metrics_mutex_);
      total_ += counts;
    }
    report("database", done.ok() ? std::nullopt : std::optional(done.fault().message));
    if (!done.ok()) return std::move(done).fault();
    return counts;
  }

 private:
  mutable std::mutex metrics_mutex_;
  Counts total_;
};

} // namespace oncekey
