#include "workers/worker_loop.h"

namespace oncekey {

BackgroundWorker::BackgroundWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BackgroundWorker::~BackgroundWorker() = default;
void BackgroundWorker::run() { impl_->run(); }
void BackgroundWorker::stop() { impl_->stop(); }
bool BackgroundWorker::stopping() const { return impl_->stopping(); }
void BackgroundWorker::on_trouble(TroubleObserver observer) { impl_->on_trouble(std::move(observer)); }
std::map<std::string, std::string> BackgroundWorker::troubles() const { return impl_->troubles(); }

void BackgroundWorker::Impl::repeat(const std::function<Turn()>& turn) {
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

void BackgroundWorker::Impl::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

std::map<std::string, std::string> BackgroundWorker::Impl::troubles() const {
  const std::lock_guard lock(mutex_);
  return troubles_;
}

// A reason that changes while the same thing goes on failing is kept, and the observer is not called again.
void BackgroundWorker::Impl::failing(const std::string& what, std::string why) {
  const std::lock_guard one_at_a_time(observer_mutex_);
  std::optional<std::string> told = why;
  {
    const std::lock_guard lock(mutex_);
    if (!troubles_.insert_or_assign(what, std::move(why)).second) return;
  }
  if (observer_) observer_(what, told);
}

void BackgroundWorker::Impl::working(const std::string& what) {
  const std::lock_guard one_at_a_time(observer_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (troubles_.erase(what) == 0) return;
  }
  if (observer_) observer_(what, std::nullopt);
}

bool BackgroundWorker::Impl::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

} // namespace oncekey
