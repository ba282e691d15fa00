// One suite for every store: what src/core/store.h promises, asked of each of them in the same words.
//
// A store joins by giving a way to open it (StoreUnderTest) and one line in store_conformance.cc. Time is turned by
// hand, so nothing here sleeps.
#pragma once

#include "core/job_store.h"
#include "core/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace oncekey {

// How the suite handles one kind of store.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual Store& store() = 0;
  // Turns the store's clock forward, and lets it drop what has ended.
  virtual void advance(Millis by) = 0;
  // Closes the store and opens it again; false for stores that keep nothing.
  virtual bool reopen() = 0;
  // Whether several processes may use it at once.
  virtual bool shared() const { return false; }
  // The least time that tells before from after. A server's clock runs on while a test looks at it: some seconds there.
  virtual Millis blink() const { return Millis{1}; }
  // After so many takes in a row that brought nothing, no job is due. A store of many partitions looks at some of them
  // with each take.
  virtual int takes_to_see_all() const { return 1; }
  // Makes the stored message of a job unreadable; false for stores that cannot be damaged from outside.
  virtual bool damage_message(const RecordId& /*id*/) { return false; }
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StoreUnderTest>()> make;
};

// The same store below a SealingStore: sealed_under_test.cc.
StoreKind sealed(const StoreKind& kind);
// Both.
inline std::vector<StoreKind> clear_and_sealed(const StoreKind& kind) { return {kind, sealed(kind)}; }

class StoreConformance : public ::testing::TestWithParam<StoreKind> {
 protected:
  static constexpr Millis kLease{10'000};
  static constexpr Millis kRetention{400'000}; // buckets of 131 s

  void SetUp() override {
    under_test_ = GetParam().make();
    set_owners_here();
    store().announce_to([this](const std::optional<RecordId>& settled) {
      if (!settled) return;
      const std::lock_guard lock(news_mutex_);
      news_.insert(*settled);
      news_came_.notify_all();
    });
  }
  void TearDown() override { under_test_.reset(); }

  Store& store() { return under_test_->store(); }
  void advance(Millis by) { under_test_->advance(by); }
  bool reopen() {
    const bool again = under_test_->reopen();
    set_owners_here();
    return again;
  }
  bool shared() const { return under_test_->shared(); }
  Millis blink() const { return under_test_->blink(); }
  int takes_to_see_all() const { return under_test_->takes_to_see_all(); }
  bool damage_message(const RecordId& id) { return under_test_->damage_message(id); }
  // As near to each other as the store's clock lets one tell.
  bool same_instant(Time a, Time b) const;

  static RecordId id(std::uint64_t number);
  static Fingerprint print(std::uint8_t byte);
  static StoredResponse answer(std::string body, int status = 201);

  // The verbs wait for the answer and fail the test on a fault.
  ClaimAnswer claim(std::uint64_t key, Abandoned abandoned = Abandoned::leave, std::uint8_t fingerprint = 1);
  // The fence of a claim that must succeed; 0 and a failure if it does not. It must be above those before of this key.
  std::uint64_t own(std::uint64_t key, Abandoned abandoned = Abandoned::leave);
  // The one that own() returned last.
  std::uint64_t fence(std::uint64_t key) { return fences_[key]; }
  // Says that a call of this process works on the key with that fence, or none.
  void works_here(std::uint64_t key, std::optional<std::uint64_t> fence);
  // The same as own() with another retention than the usual.
  std::uint64_t own_for(std::uint64_t key, Millis retention);
  // The record of a claim that must find one.
  Record found(std::uint64_t key, Abandoned abandoned = Abandoned::leave, std::uint8_t fingerprint = 1);
  std::optional<Found> find(std::uint64_t key);
  FenceAnswer renew(std::uint64_t key, std::uint64_t fence, Millis lease = kLease);
  FenceAnswer complete(std::uint64_t key, std::uint64_t fence, StoredResponse response);
  FenceAnswer release(std::uint64_t key, std::uint64_t fence);
  FenceAnswer hold(std::uint64_t key, std::uint64_t fence, Holder by = Holder::owner);
  OperatorAnswer operate(std::uint64_t key, OperatorAction action, StoredResponse response = {});
  std::vector<Listed> list(ListRequest request = {});

  // Looks at a record with the wish to be told when it is settled; true if it is in progress.
  bool look_and_wait(std::uint64_t key);
  // Waits until the news came that the record was settled.
  bool told(std::uint64_t key);

  // Claims `key` from `threads` threads at once; returns how many were told they own it.
  int race_for(std::uint64_t key, int threads);

  // Waits for the one answer of an asynchronous call.
  template <class T, class Call>
  static Result<T> wait_for(Call call) {
    std::promise<Result<T>> promise;
    std::future<Result<T>> answer = promise.get_future();
    call([&promise](Result<T> result) { promise.set_value(std::move(result)); });
    return answer.get();
  }

  // The value; a fault fails the test.
  template <class T, class Call>
  static T value_of(Call call) {
    Result<T> result = wait_for<T>(std::move(call));
    if (result) return *std::move(result);
    ADD_FAILURE() << result.fault().message;
    return T{};
  }
  static ClaimRequest request(std::uint64_t key, Abandoned abandoned, std::uint8_t fingerprint);

 private:
  void set_owners_here();

  std::map<std::uint64_t, std::uint64_t> fences_;
  std::mutex here_mutex_;
  std::map<RecordId, std::uint64_t> here_;
  std::mutex news_mutex_;
  std::condition_variable news_came_;
  std::set<RecordId> news_;
  std::unique_ptr<StoreUnderTest> under_test_; // goes first: its threads may have news to tell
};

// The part that is about jobs: jobs_conformance.cc, job_order_conformance.cc.
class JobsConformance : public StoreConformance {
 protected:
  using Keys = std::vector<std::string>;
  static constexpr const char* kRoute = "hook /hooks/stripe";
  static constexpr const char* kOther = "hook /hooks/github";

  JobStore& jobs() { return store().jobs(); }

  // Jobs from 100 on are of one order.
  static RecordId job(std::uint64_t number) {
    if (number < 100) return id(number);
    RecordId job = id(1);
    job.bytes[10] = static_cast<std::uint8_t>(number); // where with_order() does not write
    return with_order(job, id(0xa5a5));
  }

  static StageRequest to_stage(std::uint64_t number, std::string body = "event") {
    StageRequest request;
    request.id = job(number);
    request.fingerprint = print(1);
    request.route = kRoute;
    request.key = "evt_" + std::to_string(number);
    request.ordered = number >= 100;
    request.retention = kRetention;
    request.message.target = "http://127.0.0.1:9090/events";
    request.message.headers.add("Content-Type", "application/json");
    request.message.body = std::move(body);
    return request;
  }
  // Whether it was staged.
  bool stage(StageRequest request) {
    return value_of<StageAnswer>([&](auto done) { jobs().stage(std::move(request), std::move(done)); }).staged;
  }
  bool stage(std::uint64_t number) { return stage(to_stage(number)); }

  // Up to `limit` of the jobs that are due.
  std::vector<TakenJob> take(std::size_t limit = 10, const char* route = kRoute, Millis overdue = Millis{0}) {
    std::vector<TakenJob> all;
    for (int in_vain = 0; in_vain < takes_to_see_all() && all.size() < limit;) {
      const TakeRequest request{route, limit - all.size(), kLease, overdue};
      std::vector<TakenJob> taken =
          value_of<std::vector<TakenJob>>([&](auto done) { jobs().take(request, std::move(done)); });
      in_vain = taken.empty() ? in_vain + 1 : 0;
      std::move(taken.begin(), taken.end(), std::back_inserter(all));
    }
    return all;
  }

  using Kind = AttemptEnd::Kind;
  static AttemptEnd ending(Kind kind, Millis pause = Millis{0}) {
    AttemptEnd end;
    end.kind = kind;
    end.result = kind == Kind::delivered ? AttemptResult{204, "No Content"} : AttemptResult{0, "connection refused"};
    end.pause = pause;
    if (kind == Kind::dead) end.why_dead = "the receiver does not exist";
    return end;
  }
  FenceAnswer end(const TakenJob& taken, AttemptEnd end) {
    end.route = taken.job.route;
    return value_of<FenceAnswer>([&](auto done) {
      jobs().end_attempt({taken.job.id, taken.job.fence}, std::move(end), std::move(done));
    });
  }
  FenceAnswer end(const TakenJob& taken, Kind kind, Millis pause = Millis{0}) {
    return end(taken, ending(kind, pause));
  }

  JobAnswer operate(std::uint64_t number, JobAction action, std::optional<JobSeen> seen = {}) {
    return value_of<JobAnswer>([&](auto done) { jobs().operate(job(number), kRoute, action, seen, std::move(done)); });
  }
  std::optional<FoundJob> look(std::uint64_t number) {
    return value_of<std::optional<FoundJob>>([&](auto done) { jobs().find(job(number), std::move(done)); });
  }
  JobPage list(const JobListRequest& request) {
    return value_of<JobPage>([&](auto done) { jobs().list(request, std::move(done)); });
  }
  std::vector<std::string> listed(std::optional<JobState> state, std::string route = {}) {
    JobListRequest request;
    request.state = state;
    request.route = std::move(route);
    std::vector<std::string> keys;
    for (const StoredJob& job : list(request).jobs) keys.push_back(job.key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
  // Counts may be late: asked until it is as expected, for a while.
  bool counts_become(const std::map<std::pair<std::string, JobState>, std::uint64_t>& expected) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      std::map<std::pair<std::string, JobState>, std::uint64_t> counts;
      for (const JobCount& each : value_of<std::vector<JobCount>>([&](auto done) { jobs().count(std::move(done)); })) {
        counts[{each.route, each.state}] += each.count;
      }
      if (counts == expected) return true;
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(Millis{20});
    }
  }
};

// The part that is about keys as people look at them: browse_conformance.cc.
class BrowseConformance : public StoreConformance {
 protected:
  BrowsePage browse(BrowseRequest request) {
    return value_of<BrowsePage>([&](auto done) { store().browse(request, std::move(done)); });
  }
  WaitingKeys waiting() {
    return value_of<WaitingKeys>([&](auto done) { store().count_waiting(std::move(done)); });
  }

  static std::uint64_t number_of(const Listed& line) {
    std::uint64_t number = 0;
    std::memcpy(&number, line.id.bytes.data(), sizeof number);
    return number;
  }
  // The numbers of all lines, page by page.
  std::vector<std::uint64_t> all(BrowseRequest request) {
    std::vector<std::uint64_t> numbers;
    for (int pages = 0; pages < 1000; ++pages) {
      const BrowsePage page = browse(request);
      EXPECT_LE(page.lines.size(), request.limit);
      for (const Listed& line : page.lines) numbers.push_back(number_of(line));
      EXPECT_EQ(page.whole && page.next, false) << "a page that is whole has nothing behind it";
      if (!page.next) return numbers;
      EXPECT_NE(page.next, request.after) << "the look does not get on";
      request.after = page.next;
    }
    ADD_FAILURE() << "the pages have no end";
    return numbers;
  }
  std::vector<std::uint64_t> all(KeysShown shown) {
    BrowseRequest request;
    request.shown = shown;
    return all(request);
  }

  using Numbers = std::vector<std::uint64_t>;
};

} // namespace oncekey
