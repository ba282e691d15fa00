// worker_loop: the inside of a BackgroundWorker: the loop of run(), its end, and what is failing at present.
#pragma once

#include <oncekey/workers.h>

#include <condition_variable>
#include <mutex>

namespace oncekey {

struct BackgroundWorker::Impl {
  explicit Impl(Millis idle_wait) : idle_wait_(idle_wait) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  virtual void run() {
    repeat([this] { return turn(); });
  }
  void stop();
  bool stopping() const;
  void on_trouble(TroubleObserver observer) { observer_ = std::move(observer); }
  std::map<std::string, std::string> troubles() const;

 protected:
  enum class Turn { worked, idle, failed };
  virtual Turn turn() = 0;
  // Takes turns until stop(), with a pause after each that found nothing or failed.
  void repeat(const std::function<Turn()>& turn);
  void failing(const std::string& what, std::string why);
  void working(const std::string& what);

 private:
  const Millis idle_wait_;
  std::mutex observer_mutex_; // locked before mutex_, so that the observer hears of one change at a time
  TroubleObserver observer_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::map<std::string, std::string> troubles_;
};

} // namespace oncekey
