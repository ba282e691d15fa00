// RetryBudget: how many retries a client may still make, so that retries never become most of the traffic.
//
// When a server fails every request, each client's own backoff still multiplies the load by its number of tries. The
// budget caps that factor for all calls together: in the long run there are no more retries than `share` of the
// operations, besides the reserve for clients that make too few operations to earn a retry by them.
//
// With a file, all processes that name it share one budget: a shell loop that starts a process for each call is one
// client, too. The budget is a protection and not a promise: if the file fails, each process uses a budget of its own.
//
// Threads. All members may be called from any thread.
#pragma once

#include <oncekey/client.h>

#include <mutex>

namespace oncekey {

class RetryBudget {
 public:
  // An empty path: no file.
  RetryBudget(BudgetRules rules, Time now, std::string path = {});

  // Adds the share of one operation. Called when an operation begins.
  void earn(Time now);
  // Takes one retry. False if the budget has none left.
  bool take(Time now);

 private:
  struct State {
    double balance = 0;
    Time refilled{};
  };
  bool change(Time now, const std::function<bool(State&)>& step);
  void refill(State& state, Time now) const;

  const BudgetRules rules_;
  const std::string path_;
  std::mutex mutex_;
  State own_;
};

} // namespace oncekey
