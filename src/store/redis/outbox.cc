#include "store/redis/outbox.h"

namespace oncekey::redis {
namespace {

// One is being executed while the next one travels.
constexpr int kGroupsUnderWay = 2;
constexpr int kGroupsUnderWayWithSync = 1;

} // namespace

Departure Outbox::departure(bool syncs, Deadline now) {
  if (waiting_.empty() || groups_ >= (syncs ? kGroupsUnderWayWithSync : kGroupsUnderWay)) return Departure::nothing;
  return syncs && returning_.missing(now) > 0 ? Departure::when_gathered : Departure::now;
}

std::vector<CallPtr> Outbox::take(Deadline now) {
  ++groups_;
  left_at_ = now;
  return std::exchange(waiting_, {});
}

void Outbox::group_done(std::size_t calls, Deadline now) {
  --groups_;
  returning_.answered(calls, now - left_at_, now);
}

} // namespace oncekey::redis
