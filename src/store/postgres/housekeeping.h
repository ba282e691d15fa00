// Housekeeping: what a store does besides answering calls, on a connection and a thread of its own.
//
// About once a second it counts the marker's tick up, makes partitions ahead of need and drops those whose time is
// over; now and then it looks at the server's settings and measures the tables. Any number of gateways do this at once
// on one store: what another has done already is no error.
#pragma once

#include "core/bucket.h"
#include "store/common/backoff.h"
#include "store/postgres/postgres_state.h"

#include "core/job_store.h"
#include "core/store.h"

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace oncekey::postgres {

class Housekeeping {
 public:
  enum class Rounds { in_background, by_hand };
  Housekeeping(PostgresState& state, Rounds rounds);
  // After state.stop().
  ~Housekeeping();

  // One round now, on the caller's thread.
  Status round();

  void list(const ListRequest& request, Done<std::vector<Listed>> done);
  void browse(const BrowseRequest& request, Done<BrowsePage> done);
  void count_waiting(Done<WaitingKeys> done);
  void list_jobs(const JobListRequest& request, Done<JobPage> done);
  void count_jobs(Done<std::vector<JobCount>> done);
  StoreStats stats() const;

 private:
  struct Partition {
    std::string name;
    BucketId bucket;
    bool attached = false;
  };
  void run();
  Status ensure_connection();
  Result<std::vector<Partition>> partitions();
  Status make_ahead(const std::vector<Partition>& present);
  void drop_ended(const std::vector<Partition>& present);
  Status drop(const Partition& partition);
  Status forget_jobs();
  Status measure();
  Result<Section> ask_server(const Statement& statement);
  Result<std::vector<Listed>> list_now(const ListRequest& request);
  Result<BrowsePage> browse_now(const BrowseRequest& request);
  Result<WaitingKeys> count_now();
  Result<JobPage> list_jobs_now(const JobListRequest& request);
  Result<std::vector<JobCount>> count_jobs_now();
  Status note_unsettled();

  // What an operator asks, answered on this thread.
  struct Question {
    std::function<void()> answer;
    std::function<void(const Fault& fault)> refuse;
  };
  template <class T>
  void ask(std::function<Result<T>()> look, Done<T> done);
  void answer_questions();

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
