#include "workers/worker_loop.h"

#include "base/utf8.h"

namespace oncekey {
namespace {

// Enough for an operator; the end of a longer message says little.
constexpr std::size_t kErrorTextMax = 1000;

bool visible(char c) { return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t'; }

} // namespace

std::string error_text(std::string_view said) {
  std::string out;
  while (!said.empty()) {
    const std::size_t length = utf8_length(said);
    const bool keep = length > 1 || (length == 1 && visible(said[0]));
    if (out.size() + (keep ? length : 1) > kErrorTextMax) break;
    out += keep ? said.substr(0, length) : "?";
    said.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

Result<std::vector<SqlRows>> transact(Database& database, std::span<const phases::Command> commands) {
  auto session = database.engine().session();
  if (!session.ok()) return std::move(session).fault();
  return (*session)->transact(phases::Isolation::read_committed, commands);
}

Result<SqlRows> ask(Database& database, const phases::Command& command) {
  auto rows = transact(database, {&command, 1});
  if (!rows.ok()) return std::move(rows).fault();
  return std::move(rows->front());
}

BackgroundWorker::BackgroundWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BackgroundWorker::~BackgroundWorker() = default;
void BackgroundWorker::run() { impl_->run(); }
void BackgroundWorker::stop() { impl_->stop(); }
bool BackgroundWorker::stopping() const { return impl_->stopping(); }
void BackgroundWorker::on_trouble(TroubleObserver observer) { impl_->on_trouble(std::move(observer)); }
std::map<std::string, std::string> BackgroundWorker::troubles() const { return impl_->troubles(); }

void BackgroundWorker::Impl::repeat(const std::function<bool()>& turn) {
  while (!stopping()) {
    if (!turn()) pause();
  }
}

void BackgroundWorker::Impl::pause() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, idle_wait_, [&] { return stopping_; });
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
void BackgroundWorker::Impl::report(const std::string& what, const std::optional<std::string>& why) {
  const std::lock_guard one_at_a_time(observer_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const bool changed = why ? troubles_.insert_or_assign(what, *why).second : troubles_.erase(what) != 0;
    if (!changed) return;
  }
  if (observer_) observer_(what, why);
}

bool BackgroundWorker::Impl::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

} // namespace oncekey
