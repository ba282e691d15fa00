#include "client/retry_budget.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace oncekey {
namespace {

// What busy times may save up for a failure, in reserves. Without a bound an hour of success would pay for a storm.
constexpr double kReservesSavedMax = 5;

// The file, open and locked; closing it gives the lock up.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR)) {
    if (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0) {
      ::close(fd_);
      fd_ = -1;
    }
  }
  ~LockedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  bool good() const { return fd_ >= 0; }

  // False for a new file and for anything that a crash or a person left there.
  bool read(double& balance, Time& refilled) const {
    std::array<char, 128> text{};
    if (::pread(fd_, text.data(), text.size() - 1, 0) <= 0) return false;
    std::int64_t millis = 0;
    if (std::sscanf(text.data(), "oncekey budget 1 %lf %" SCNd64 " end", &balance, &millis) != 2) return false;
    refilled = Time(Millis(millis));
    return std::isfinite(balance) && balance >= 0;
  }
  void write(double balance, Time refilled) const {
    const std::string text =
        fmt::format("oncekey budget 1 {:.6f} {} end\n", balance, refilled.time_since_epoch().count());
    // A write that fails is ignored: the next reader finds the old balance, or starts over with the reserve.
    const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
    if (written > 0 && ::ftruncate(fd_, written) != 0) return;
  }

 private:
  int fd_;
};

} // namespace

RetryBudget::RetryBudget(BudgetRules rules, Time now, std::string path)
    : rules_(rules), path_(std::move(path)), own_{static_cast<double>(rules.reserve), now} {}

void RetryBudget::refill(State& state, Time now) const {
  const double reserve = rules_.reserve;
  const double passed = std::chrono::duration<double>(now - state.refilled).count();
  state.refilled = now;
  if (state.balance >= reserve || passed <= 0 || rules_.refill.count() <= 0) return;
  const double per_second = reserve / std::chrono::duration<double>(rules_.refill).count();
  state.balance = std::min(reserve, state.balance + passed * per_second);
}

bool RetryBudget::change(Time now, const std::function<bool(State&)>& step) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) {
    refill(own_, now);
    return step(own_);
  }
  const LockedFile file(path_);
  State shared{static_cast<double>(rules_.reserve), now};
  if (file.good() && !file.read(shared.balance, shared.refilled)) shared = {static_cast<double>(rules_.reserve), now};
  State& state = file.good() ? shared : own_;
  refill(state, now);
  const bool done = step(state);
  if (file.good()) file.write(state.balance, state.refilled);
  return done;
}

void RetryBudget::earn(Time now) {
  change(now, [&](State& state) {
    const double most = std::max(state.balance, kReservesSavedMax * rules_.reserve);
    state.balance = std::min(most, state.balance + rules_.share);
    return true;
  });
}

bool RetryBudget::take(Time now) {
  return change(now, [](State& state) {
    // With a small tolerance: ten times 0.1 does not add up to 1 exactly.
    if (state.balance < 1 - 1e-4) return false;
    state.balance = std::max(0.0, state.balance - 1);
    return true;
  });
}

} // namespace oncekey
