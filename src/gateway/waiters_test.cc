#include "gateway/waiters.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

RecordId waiting_id(std::uint8_t number) {
  RecordId id;
  id.bytes[0] = number;
  return id;
}

TEST(Waiters, TakesNoMoreThanTheLimitForOneRecord) {
  Waiters waiters;
  Loop loop;
  const auto first = waiters.join(waiting_id(1), loop, 1);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(waiters.join(waiting_id(1), loop, 1), nullptr);
  EXPECT_NE(waiters.join(waiting_id(2), loop, 1), nullptr);
}

TEST(Waiters, GivesThePlaceBackWhenTheTicketGoes) {
  Waiters waiters;
  Loop loop;
  waiters.join(waiting_id(1), loop, 1).reset();
  EXPECT_EQ(waiters.waiting(), 0u);
  EXPECT_NE(waiters.join(waiting_id(1), loop, 1), nullptr);
}

TEST(Waiters, WakesOnlyThoseOfThatRecord) {
  Waiters waiters;
  Loop loop;
  const auto mine = waiters.join(waiting_id(1), loop, 9);
  const auto other = waiters.join(waiting_id(2), loop, 9);
  bool woken = false;
  const auto wait = [&](Waiters::Ticket& ticket) -> Task<void> {
    co_await ticket.wait_until(MonotonicTime::max());
    woken = true;
  };
  spawn(wait(*mine));
  loop.poll();
  waiters.notify(waiting_id(2));
  loop.poll();
  EXPECT_FALSE(woken);
  waiters.notify(waiting_id(1));
  loop.poll();
  EXPECT_TRUE(woken);
}

TEST(Waiters, DoesNotMissANotificationFromBeforeTheWait) {
  Waiters waiters;
  Loop loop;
  const auto ticket = waiters.join(waiting_id(1), loop, 9);
  waiters.notify(waiting_id(1));
  bool woken = false;
  const auto wait = [&]() -> Task<void> {
    co_await ticket->wait_until(MonotonicTime::max());
    woken = true;
  };
  spawn(wait());
  loop.poll();
  EXPECT_TRUE(woken);
}

} // namespace
} // namespace oncekey
