#include <oncekey/workers.h>

namespace oncekey {

void BackgroundWorker::run() {
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

bool BackgroundWorker::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

} // namespace oncekey
