// Housekeeping: what a store does besides answering calls, on a connection and a thread of its own.
//
// About once a second it counts the marker's tick up, makes partitions ahead of need and drops those whose time is
// over; now and then it looks at the server's settings and measures the tables. Any number of gateways do this at once
// on one store: what another has done already is no error.
#pragma once

#include "core/bucket.h"
#include "core/job_store.h"
#include "store/postgres/postgres_state.h"
#include "store/postgres/postgres_store.h"

#include <deque>
#include <thread>

namespace oncekey::postgres {

class Housekeeping {
 public:
  Housekeeping(PostgresState& state, PostgresOptions::Maintenance maintenance);
  // After state.stop().
  ~Housekeeping();

  // One round now, on the caller's thread.
  Status round();

  // Answers what an operator asks, by one of the functions below, on the thread for upkeep: ask(done,
  // &Housekeeping::list, request).
  template <class T, class Look, class... Request>
  void ask(Done<T> done, Look look, const Request&... request) {
    auto answer = [this, look, request...] { return (this->*look)(request...); };
    if (!thread_.joinable()) return done(answer());
    const std::lock_guard lock(mutex_);
    questions_.push_back([answer, done](const Fault* closed) { done(closed ? Result<T>(*closed) : answer()); });
    wake_.notify_all();
  }
  Result<std::vector<Listed>> list(const ListRequest& request);
  Result<BrowsePage> browse(const BrowseRequest& request);
  Result<WaitingKeys> count_waiting();
  Result<JobPage> list_jobs(const JobListRequest& request);
  Result<std::vector<JobCount>> count_jobs();
  Result<std::vector<GatewayBeat>> beat(const GatewayBeat& mine);

  StoreStats stats() const;

 private:
  struct Partition {
    std::string name;
    BucketId bucket;
    bool attached = false;
  };
  void run();
  void answer_questions();
  Status ensure_connection();
  // Over the connection there is. The fault is of kind unavailable: no caller has to know how far it came.
  Result<Section> run_statement(const Statement& statement, Millis longest);
  // For what operators ask: takes a turn, and connects if need be. `unsettled`: the list of those is brought up to
  // date first.
  enum class Unsettled { as_they_are, up_to_date };
  Result<Section> ask_server(const Statement& statement, Unsettled unsettled = Unsettled::as_they_are);
  Result<std::vector<Partition>> partitions();
  Status make_ahead(const std::vector<Partition>& present);
  void drop_ended(const std::vector<Partition>& present);
  Status drop(const Partition& partition);
  Status measure();

  // Answers; with a fault, that the store is closed, it says so.
  using Question = std::function<void(const Fault* closed)>;

  PostgresState& state_;
  std::mutex connection_mutex_; // a round by hand and one in the background take turns
  std::unique_ptr<Connection> connection_;
  Deadline look_again_{};
  Deadline measure_again_{};
  Deadline drop_again_{};
  mutable std::mutex mutex_;
  StoreStats stats_;
  std::deque<Question> questions_;
  std::condition_variable wake_;
  std::thread thread_;
};

} // namespace oncekey::postgres
