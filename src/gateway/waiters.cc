#include "gateway/waiters.h"

namespace oncekey {

struct Waiters::Waiter {
  explicit Waiter(Loop& owner) : loop(owner), notice(owner) {}
  Loop& loop;
  Notice notice; // of the loop's thread
};

std::unique_ptr<Waiters::Ticket> Waiters::join(const RecordId& id, Loop& loop, std::uint32_t most) {
  auto waiter = std::make_shared<Waiter>(loop);
  {
    const auto waiters = waiters_.of(id);
    auto& waiting = (*waiters)[id];
    if (waiting.size() >= most) {
      if (waiting.empty()) waiters->erase(id);
      return nullptr;
    }
    waiting.push_back(waiter);
  }
  waiting_.fetch_add(1, std::memory_order_relaxed);
  return std::unique_ptr<Ticket>(new Ticket(*this, id, std::move(waiter)));
}

void Waiters::wake(const std::shared_ptr<Waiter>& waiter) {
  waiter->loop.post([waiter] { waiter->notice.give(); });
}

void Waiters::notify(const RecordId& id) {
  const auto waiters = waiters_.of(id);
  const auto found = waiters->find(id);
  if (found == waiters->end()) return;
  for (const auto& waiter : found->second) wake(waiter);
}

void Waiters::notify_all() {
  waiters_.each([](const auto& by_id) {
    for (const auto& [id, waiters] : by_id) {
      for (const auto& waiter : waiters) wake(waiter);
    }
  });
}

void Waiters::leave(const RecordId& id, const std::shared_ptr<Waiter>& waiter) {
  const auto waiters = waiters_.of(id);
  const auto found = waiters->find(id);
  if (found == waiters->end()) return;
  std::erase(found->second, waiter);
  if (found->second.empty()) waiters->erase(found);
}

Waiters::Ticket::Ticket(Waiters& owner, const RecordId& id, std::shared_ptr<Waiter> waiter)
    : owner_(owner), id_(id), waiter_(std::move(waiter)) {}

Waiters::Ticket::~Ticket() {
  owner_.leave(id_, waiter_);
  owner_.waiting_.fetch_sub(1, std::memory_order_relaxed);
}

Task<void> Waiters::Ticket::wait_until(MonotonicTime due) { co_await waiter_->notice.wait_until(due); }

} // namespace oncekey
