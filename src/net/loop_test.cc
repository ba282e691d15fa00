#include "net/loop.h"

#include "net/signals.h"

#include <gtest/gtest.h>

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

using std::chrono::milliseconds;

TEST(Loop, RunsWhatIsPostedInItsOrder) {
  Loop loop;
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) loop.post([&ran, i] { ran.push_back(i); });
  loop.poll();
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2}));
}

TEST(Loop, RunsWhatOtherThreadsPostWhileItSleepsAndWhileItDoesNot) {
  constexpr int kEach = 2000;
  Loop loop;
  int ran = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) loop.post([&ran] { ++ran; });
    });
  }
  loop.run_until([&] { return ran == 3 * kEach; });
  for (std::thread& thread : threads) thread.join();
}

TEST(Loop, TakesWorkThatCannotBeCopiedAndDropsItWhenItEnds) {
  const auto witness = std::make_shared<int>(0);
  {
    Loop loop;
    loop.post([held = std::make_unique<std::shared_ptr<int>>(witness)] {});
    EXPECT_EQ(witness.use_count(), 2);
  }
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(Loop, IsStoppedFromAnotherThread) {
  Loop loop;
  std::thread other([&] { loop.stop(); });
  loop.run();
  other.join();
}

TEST(Loop, RunsAgainAfterItWasStopped) {
  Loop loop;
  int ran = 0;
  for (int i = 0; i < 2; ++i) {
    loop.post([&] {
      ++ran;
      loop.stop();
    });
    loop.run();
  }
  EXPECT_EQ(ran, 2);
}

TEST(Loop, AGuestRunsWithItsHost) {
  Loop host, guest;
  std::vector<std::string> ran;
  guest.post([&] { ran.push_back("posted before"); });
  host.host(&guest);
  host.poll();
  // What the two do for each other takes one turn.
  host.post([&] {
    ran.push_back("host");
    guest.post([&] { ran.push_back("guest"); });
  });
  host.poll();
  EXPECT_EQ(ran, (std::vector<std::string>{"posted before", "host", "guest"}));
  // A host that sleeps wakes up for what another thread posts to the guest, and for the guest's deadlines.
  const auto sleep = [&]() -> Task<void> {
    co_await sleep_for(guest, milliseconds(5));
    ran.push_back("slept");
  };
  guest.post([&] { spawn(sleep()); });
  host.run_until([&] { return ran.back() == "slept"; });
  std::thread other([&] { guest.post([&] { ran.push_back("other thread"); }); });
  host.run_until([&] { return ran.back() == "other thread"; });
  other.join();
}

TEST(Loop, AGuestThatHasLeftRunsByItself) {
  Loop host, guest;
  host.host(&guest);
  host.host(nullptr);
  int ran = 0;
  guest.post([&] { ++ran; });
  host.poll();
  EXPECT_EQ(ran, 0);
  guest.poll();
  EXPECT_EQ(ran, 1);
}

TEST(Loop, TellsAGuestOfTheEventsOfItsDescriptors) {
  Loop host, guest;
  host.host(&guest);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  WatchedDescriptor watched(guest, Descriptor(ends[0]));
  const Descriptor peer(ends[1]);
  char got[8] = {};
  ssize_t bytes = -1;
  const auto read = [&]() -> Task<void> {
    while ((bytes = watched.receive(got, sizeof got)) < 0) co_await watched.until_readable();
  };
  spawn(read());
  std::thread other([&] { EXPECT_EQ(::write(peer.number(), "hello", 5), 5); });
  host.run_until([&] { return bytes >= 0; });
  other.join();
  EXPECT_EQ(std::string_view(got, 5), "hello");
}

TEST(Loop, WakesTasksThatSleepForAnotherThread) {
  struct Sleep {
    Loop& loop;
    std::vector<TaskFrame*>& asleep;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<TaskPromise<void>> caller) const { asleep.push_back(&caller.promise()); }
    void await_resume() const {}
  };
  Loop loop;
  std::vector<TaskFrame*> asleep;
  int awake = 0;
  const auto sleep = [&]() -> Task<void> {
    co_await Sleep{loop, asleep};
    ++awake;
  };
  spawn(sleep());
  spawn(sleep());
  std::thread other([&] {
    for (TaskFrame* const frame : asleep) loop.wake(*frame);
  });
  loop.run_until([&] { return awake == 2; });
  other.join();
}

TEST(Loop, ATaskThatIsWokenAndNotResumedEndsWithTheLoop) {
  struct Sleep {
    TaskFrame*& asleep;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<TaskPromise<void>> caller) const { asleep = &caller.promise(); }
    void await_resume() const {}
  };
  const auto witness = std::make_shared<int>(0);
  {
    Loop loop;
    TaskFrame* asleep = nullptr;
    const auto sleep = [&](std::shared_ptr<int>) -> Task<void> { co_await Sleep{asleep}; };
    spawn(sleep(witness));
    loop.wake(*asleep);
  }
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(Loop, ABusyTaskStarvesNoOther) {
  Loop loop;
  bool over = false;
  int turns = 0;
  const auto busy = [&]() -> Task<void> {
    while (!over) {
      co_await loop.next_turn();
      ++turns;
    }
  };
  spawn(busy());
  std::thread other([&] { loop.post([&] { over = true; }); });
  loop.run_until([&] { return over; });
  other.join();
  EXPECT_GT(turns, 0);
  loop.poll(); // lets the busy one end
}

TEST(Timer, FiresOnceUnlessMovedOrCleared) {
  Loop loop;
  int fired = 0;
  int never = 0;
  bool last = false;
  Timer timer(loop, [&] { ++fired; });
  Timer cleared(loop, [&] { ++never; });
  Timer later(loop, [&] { last = true; });
  timer.at(std::chrono::steady_clock::now());
  cleared.at(std::chrono::steady_clock::now());
  cleared.clear();
  later.after(2 * kTimerTick);
  loop.run_until([&] { return last; });
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(never, 0);
}

TEST(Timer, MayDestroyItselfAndOthersThatAreDueToo) {
  Loop loop;
  std::unique_ptr<Timer> first;
  std::unique_ptr<Timer> second;
  int fired = 0;
  const auto fire = [&] {
    ++fired;
    first.reset();
    second.reset();
  };
  first = std::make_unique<Timer>(loop, fire);
  second = std::make_unique<Timer>(loop, fire);
  first->at({});
  second->at({});
  loop.run_until([&] { return fired > 0; });
  EXPECT_EQ(fired, 1);
}

TEST(Notice, IsKeptUntilATaskWaitsForIt) {
  Loop loop;
  Notice notice(loop);
  notice.give();
  notice.give();
  const auto wait = [&]() -> Task<std::vector<bool>> {
    std::vector<bool> came;
    came.push_back(co_await notice.wait());
    came.push_back(co_await notice.wait_until(std::chrono::steady_clock::now()));
    co_return came;
  };
  EXPECT_EQ(loop.run_to_end(wait()), (std::vector<bool>{true, false}));
}

TEST(Notice, EndsAWaitBeforeItsDeadline) {
  Loop loop;
  Notice notice(loop);
  const auto wait = [&]() -> Task<bool> {
    co_return co_await notice.wait_until(std::chrono::steady_clock::now() + std::chrono::hours(1));
  };
  loop.post([&] { notice.give(); });
  EXPECT_TRUE(loop.run_to_end(wait()));
}

TEST(Notice, MayGoWhileATaskWaitsForIt) {
  Loop loop;
  auto notice = std::make_unique<Notice>(loop);
  const auto wait = [&]() -> Task<bool> {
    co_return co_await notice->wait_until(std::chrono::steady_clock::now() + milliseconds(1));
  };
  loop.post([&] { notice.reset(); });
  EXPECT_FALSE(loop.run_to_end(wait()));
}

TEST(Notice, MayGoBeforeTheTaskItWasGivenToGoesOn) {
  Loop loop;
  auto notice = std::make_unique<Notice>(loop);
  const auto wait = [&]() -> Task<bool> { co_return co_await notice->wait(); };
  loop.post([&] {
    notice->give();
    notice->give();
    notice.reset();
  });
  EXPECT_FALSE(loop.run_to_end(wait()));
}

TEST(Arrival, BringsTheValueOrNothingByTheDeadline) {
  Loop loop;
  Arrival<std::string> comes(loop);
  Arrival<std::string> does_not(loop);
  const auto wait = [&](Arrival<std::string>& arrival, milliseconds patience) -> Task<std::string> {
    const std::optional<std::string> value = co_await arrival.wait_until(std::chrono::steady_clock::now() + patience);
    co_return value.value_or("nothing");
  };
  loop.post([&] { comes.set("it"); });
  EXPECT_EQ(loop.run_to_end(wait(comes, std::chrono::hours(1))), "it");
  EXPECT_EQ(loop.run_to_end(wait(does_not, milliseconds(1))), "nothing");
}

TEST(SleepUntil, TasksWakeInTheOrderOfTheirMoments) {
  Loop loop;
  std::vector<int> woken;
  const MonotonicTime now = std::chrono::steady_clock::now();
  const auto sleep = [&](int after) -> Task<void> {
    co_await sleep_until(loop, now + std::chrono::microseconds(100 * after));
    woken.push_back(after);
  };
  for (const int after : {3, 1, 2}) spawn(sleep(after));
  loop.run_until([&] { return woken.size() == 3; });
  EXPECT_EQ(woken, (std::vector<int>{1, 2, 3}));
}

TEST(WatchedDescriptor, AWaitEndsByInterruptionAndByClosing) {
  Loop loop;
  WatchedDescriptor watched(loop, Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)));
  const auto wait = [&]() -> Task<bool> { co_return co_await watched.until_readable(); };
  loop.post([&] { watched.interrupt(); });
  EXPECT_FALSE(loop.run_to_end(wait()));
  loop.post([&] { watched.close(); });
  EXPECT_FALSE(loop.run_to_end(wait()));
  EXPECT_FALSE(loop.run_to_end(wait())) << "of a closed one at once";
}

TEST(WatchedDescriptor, ATaskWhoseDescriptorIsGoneEndsWithTheLoop) {
  const auto witness = std::make_shared<int>(0);
  {
    Loop loop;
    auto watched = std::make_unique<WatchedDescriptor>(loop, Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)));
    const auto wait = [&](std::shared_ptr<int>) -> Task<void> { (void)co_await watched->until_readable(); };
    spawn(wait(witness));
    loop.poll();
    watched.reset();
  }
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(WatchedDescriptor, HearsNothingOfAClosedSocketThatAForkedProcessHolds) {
  Loop loop;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  WatchedDescriptor watched(loop, Descriptor(ends[0]));
  const Descriptor peer(ends[1]);
  bool readable = false;
  const auto wait = [&]() -> Task<void> { readable = co_await watched.until_readable(); };
  spawn(wait());
  loop.poll();
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  watched.close();
  loop.poll();
  watched.assign(Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)));
  spawn(wait());
  EXPECT_EQ(::send(peer.number(), "x", 1, 0), 1);
  loop.poll();
  loop.poll();
  EXPECT_FALSE(readable);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(SignalWatch, CallsOnTheLoopsThreadForEachSignal) {
  Loop loop;
  int caught = 0;
  {
    const SignalWatch watch(loop, {SIGUSR1, SIGUSR2}, [&] { ++caught; });
    std::raise(SIGUSR1);
    loop.run_until([&] { return caught == 1; });
    std::raise(SIGUSR2);
    std::raise(SIGUSR1);
    loop.run_until([&] { return caught == 3; });
  }
  loop.poll();
}

} // namespace
} // namespace oncekey
