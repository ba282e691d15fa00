#include <oncekey/workers.h>

namespace oncekey {

void BackgroundWorker::run() {
  repeat([this] { return turn(); });
}

void BackgroundWorker::repeat(const std::function<Turn()>& turn) {
  for (;;) {
    if (stopping()) return;
    switch (turn()) {
      case Turn::worked:
        break;
      case Turn::idle:
      case Turn::failed: {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, idle_wait_, [&] { return stopping_; });
        break;
      }
    }
  }
}

void BackgroundWorker::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

std::map<std::string, std::string> BackgroundWorker::troubles() const {
  const std::lock_guard lock(mutex_);
  return troubles_;
}

// The reason may change while it goes on failing; that is kept and not told.
void BackgroundWorker::failing(const std::string& what, std::string why) {
  const std::lock_guard one_at_a_time(observer_mutex_);
  std::optional<std::string> told = why;
  {
    const std::lock_guard lock(mutex_);
    if (!troubles_.insert_or_assign(what, std::move(why)).second) return;
  }
  if (observer_) observer_(what, told);
}

void BackgroundWorker::working(const std::string& what) {
  const std::lock_guard one_at_a_time(observer_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (troubles_.erase(what) == 0) return;
  }
  if (observer_) observer_(what, std::nullopt);
}

bool BackgroundWorker::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

} // namespace oncekey
