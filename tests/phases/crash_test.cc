// Every crash point: a process is killed after each statement it sends and around each foreign call, and the attempt
// that comes next finishes the work: one charge, one receipt, one response in effect.
//
// The dying process is a fork. Whatever it uses it opens itself: nothing of a SQLite connection survives a fork.
#include "database_under_test.h"
#include "ride_app.h"

#include <oncekey/inbox.h>
#include <oncekey/workers.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <set>

namespace oncekey {
namespace {

using namespace std::chrono_literals;

constexpr int kDied = 77;
constexpr int kWentWrong = 78;
// More statements than any of the pieces of work below sends: a loop that gets here does not end.
constexpr int kPointsMax = 1000;

using Event = std::function<void()>;

bool slow_tests() {
  const char* const wanted = std::getenv("ONCEKEY_SLOW_TESTS");
  return wanted && std::string_view(wanted) != "0" && *wanted;
}

// The short form takes every third point, others each time.
int stride() { return slow_tests() ? 1 : 3; }
int first_point() { return 1 + static_cast<int>(getpid()) % stride(); }

enum class Death { died, finished };

// Runs `work` in a process that ends at the n-th event.
Death run_and_die_at(int n, const std::function<void(const Event&)>& work) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const Event event = [&] {
      if (++count == n) _exit(kDied);
    };
    try {
      work(event);
    } catch (...) {
      _exit(kWentWrong);
    }
    _exit(testing::Test::HasFailure() ? kWentWrong : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "a signal: " << status;
  const int code = WEXITSTATUS(status);
  EXPECT_TRUE(code == 0 || code == kDied) << "the process failed by itself: " << code;
  return code == kDied ? Death::died : Death::finished;
}

// One that is killed again and again over the same operation neither waits long for it nor gives it up: with the
// default options and an unlucky jitter the deaths of these tests come to more attempts than a dead letter takes.
CompleterOptions patient() {
  CompleterOptions options;
  options.backoff_max = 1min;
  options.attempts_max = kPointsMax;
  return options;
}

// A database, the world outside, and the verbs of these tests.
struct Scene {
  explicit Scene(Dialect dialect) : place(dialect) {
    const auto database = place.open();
    make_ride_tables(*database);
    OutsideWorld world(place.folder());
  }

  std::unique_ptr<Database> open_with(const Event& event, Millis later = Millis(0)) const {
    DatabaseOptions options;
    options.clock_ahead = later;
    options.on_statement = [event](StatementMoment moment, std::string_view) {
      if (moment != StatementMoment::round_trip) event();
    };
    auto opened = open_database(place.url(), options);
    EXPECT_TRUE(opened.ok()) << opened.fault().message;
    return std::move(opened).value();
  }

  // A client's request in a process that may die.
  Death request_dies_at(int n, const std::string& key) const {
    return run_and_die_at(n, [&](const Event& event) {
      const auto database = open_with(event);
      OutsideWorld world(place.folder());
      Runner runner(*database, {ride_operation(world, event)});
      EXPECT_TRUE(runner.run(ride_request(key)).ok());
    });
  }

  // The completer and the enqueuer of another process, when the lease, the grace time and all claims are over.
  void others_finish(Millis later) const {
    const auto database = place.open_later(later);
    OutsideWorld world(place.folder());
    Runner runner(*database, {ride_operation(world)});
    Completer completer(runner, patient());
    const auto completed = completer.run_once();
    ASSERT_TRUE(completed.ok()) << completed.fault().message;
    EXPECT_EQ(completed->failed, 0u);
    deliver_mail(*database, world);
  }
  static void deliver_mail(Database& database, OutsideWorld& world) {
    Enqueuer enqueuer(database, {{"mail", callback_sink([&](const Job& job) { world.receive_mail(job); })}});
    for (;;) {
      const auto counts = enqueuer.run_once();
      ASSERT_TRUE(counts.ok()) << counts.fault().message;
      if (counts->claimed == 0) return;
    }
  }

  // `keys` operations have been asked for; their clients retry, and everything happened once for each.
  void expect_once(int keys, const std::string& prefix, Millis later) const {
    const auto database = place.open_later(later);
    OutsideWorld world(place.folder());
    Runner runner(*database, {ride_operation(world)});
    for (int n = 1; n <= keys; ++n) {
      const auto outcome = runner.run(ride_request(fmt::format("{}{}", prefix, n)));
      ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
      const auto* const done = std::get_if<Finished>(&outcome.value());
      const auto* const dead = std::get_if<DeadLettered>(&outcome.value());
      ASSERT_TRUE(done) << prefix << n << " is " << outcome->index() << (dead ? ": " + dead->why : "");
      EXPECT_EQ(done->response.status, 201);
    }
    deliver_mail(*database, world);
    EXPECT_EQ(number(*database, "SELECT count(*) FROM ride"), keys);
    EXPECT_EQ(number(*database, "SELECT count(*) FROM ride WHERE charge IS NOT NULL"), keys);
    EXPECT_EQ(number(*database, "SELECT count(*) FROM audit"), keys);
    EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_answer"), keys);
    EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_operation"), 0);
    EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), 0);
    EXPECT_EQ(world.charges(), keys);
    EXPECT_EQ(world.mails(), keys);
  }

  TestPlace place;
};

class CrashPoints : public testing::TestWithParam<Dialect> {
 protected:
  Scene scene{GetParam()};
  TestPlace& place = scene.place;
};

TEST_P(CrashPoints, OfARequestAreAllRepaired) {
  int n = first_point();
  int keys = 1;
  for (; scene.request_dies_at(n, fmt::format("k{}", keys)) == Death::died; n += stride(), ++keys) {
    // In the middle of the points too, so that what one death left cannot be repaired by the next.
    if (keys % 16 == 0) scene.others_finish(10min);
    ASSERT_LT(n, kPointsMax);
  }
  EXPECT_GT(n, 20) << "the deaths did not reach into the work";
  scene.others_finish(10min);
  scene.expect_once(keys, "k", 20min);
}

TEST_P(CrashPoints, OfTheVeryFirstRequestAreAllRepaired) {
  // On a new database the first request makes the secret and the first buckets as well. A database for every point
  // takes time: the short form takes some of them, others each time.
  const int step = slow_tests() ? 1 : 8;
  for (int n = 1 + static_cast<int>(getpid()) % step;; n += step) {
    SCOPED_TRACE(fmt::format("killed at {}", n));
    Scene fresh(GetParam());
    ASSERT_LT(n, kPointsMax);
    const bool died = fresh.request_dies_at(n, "k1") == Death::died;
    fresh.others_finish(10min);
    fresh.expect_once(1, "k", 20min);
    if (!died || HasFailure()) break;
  }
}

TEST_P(CrashPoints, OfACompleterAreAllRepaired) {
  int n = first_point();
  int keys = 1;
  Millis later = 10min;
  for (;; n += stride(), ++keys, later += 10min) {
    ASSERT_LT(n, kPointsMax);
    // A request that died with the charge made and nothing recorded.
    const std::string key = fmt::format("k{}", keys);
    ASSERT_EQ(run_and_die_at(2,
                             [&](const Event& event) {
                               const auto database = place.open();
                               OutsideWorld world(place.folder());
                               Runner runner(*database, {ride_operation(world, event)});
                               (void)runner.run(ride_request(key)).ok();
                             }),
              Death::died);
    const Death death = run_and_die_at(n, [&](const Event& event) {
      const auto database = scene.open_with(event, later);
      OutsideWorld world(place.folder());
      Runner runner(*database, {ride_operation(world, event)});
      Completer completer(runner, patient());
      EXPECT_TRUE(completer.run_once().ok());
    });
    if (death == Death::finished) break;
    if (keys % 8 == 0) scene.others_finish(later + 5min);
  }
  EXPECT_GT(n, 10);
  scene.others_finish(later + 1h);
  scene.expect_once(keys, "k", later + 2h);
}

TEST_P(CrashPoints, OfAnInboxAreAllRepaired) {
  int n = 1;
  for (;; ++n) {
    ASSERT_LT(n, kPointsMax);
    const std::string message = fmt::format("m{}", n);
    const auto act = [](Transaction& transaction) { transaction.execute("INSERT INTO audit (what) VALUES ('m')"); };
    const Death death = run_and_die_at(n, [&](const Event& event) {
      const auto database = scene.open_with(event);
      (void)process_once(*database, "c", message, act).ok();
    });
    const auto database = place.open();
    ASSERT_TRUE(process_once(*database, "c", message, act).ok());
    ASSERT_EQ(number(*database, "SELECT count(*) FROM audit"), n);
    if (death == Death::finished) break;
  }
  EXPECT_GT(n, 5);
}

TEST_P(CrashPoints, OfThousandsOfJobsWithACrashEveryHundredLoseNone) {
  const int jobs = slow_tests() ? 10'000 : 2'000;
  constexpr std::size_t kBatch = 70; // so that a death at the hundredth leaves one batch deleted and one half delivered
  {
    const auto database = place.open();
    const auto staged = run_transaction(*database, [&](Transaction& transaction) {
      for (int i = 0; i < jobs; ++i) transaction.stage_job({.sink = "mail", .name = "n", .args = "[]"});
    });
    ASSERT_TRUE(staged.ok()) << staged.fault().message;
  }
  Millis later{0};
  int deaths = 0;
  for (;; later += 2min, ++deaths) {
    ASSERT_LT(deaths, kPointsMax);
    const Death death = run_and_die_at(100, [&](const Event& event) {
      const auto database = place.open_later(later);
      OutsideWorld world(place.folder());
      EnqueuerOptions options;
      options.batch = kBatch;
      Enqueuer enqueuer(*database, {{"mail", callback_sink([&](const Job& job) {
                                       world.receive_mail(job);
                                       event();
                                     })}},
                        options);
      for (;;) {
        const auto counts = enqueuer.run_once();
        if (!counts.ok() || counts->claimed == 0) return;
      }
    });
    if (death == Death::finished) break;
  }
  EXPECT_GE(deaths, jobs / 100);
  OutsideWorld world(place.folder());
  EXPECT_EQ(world.mails(), jobs);
  EXPECT_GT(world.deliveries(), jobs);
  const auto database = place.open();
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), 0);
}

ONCEKEY_ON_EVERY_DATABASE(CrashPoints);

} // namespace
} // namespace oncekey
