#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <utility>

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kBarEvery{100};
constexpr std::chrono::seconds kLineEvery{5};
constexpr std::size_t kBarMax = 30;
// Below this part the time left is a guess.
constexpr double kLeftFrom = 0.01;
// What stands beside the bar.
constexpr std::size_t kTextWidth = 50;

std::string shown_time(std::chrono::seconds time) {
  const auto seconds = time.count();
  if (seconds < 100) return fmt::format("{} s", seconds);
  if (seconds < 6000) return fmt::format("{} min", (seconds + 59) / 60);
  return fmt::format("{} h", (seconds + 3599) / 3600);
}

} // namespace

std::string shown_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

void Progress::end() {
  if (std::exchange(drawn_, false)) out_ << "\n" << std::flush;
}

std::string Progress::text(std::uint64_t done, std::uint64_t total, Clock::time_point now) const {
  const double part = static_cast<double>(done) / static_cast<double>(total);
  std::string text = fmt::format("{:3.0f} %, {} of {}", part * 100, shown_bytes(done), shown_bytes(total));
  const std::chrono::duration<double> spent = now - begun_;
  if (part >= kLeftFrom && done < total) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(spent * ((1 - part) / part));
    text += fmt::format(", {} left", shown_time(left));
  }
  return text;
}

void Progress::tell(std::uint64_t done, std::uint64_t total, Clock::time_point now) {
  const bool on_terminal = width_ > 0;
  const auto every = on_terminal ? std::chrono::milliseconds(kBarEvery) : std::chrono::milliseconds(kLineEvery);
  if (total == 0 || now - std::max(told_, begun_) < every) return;
  told_ = now;
  const std::string beside = text(std::min(done, total), total, now);
  if (!on_terminal) {
    out_ << fmt::format("{}: {}\n", what_, beside) << std::flush;
    return;
  }
  const std::size_t room = width_ > what_.size() + kTextWidth ? width_ - what_.size() - kTextWidth : 0;
  const std::size_t bar = std::min(room, kBarMax);
  const std::size_t full = bar * std::min(done, total) / total;
  drawn_ = true;
  out_ << fmt::format("\r{} [{}{}] {}\x1b[K", what_, std::string(full, '#'), std::string(bar - full, '.'), beside)
       << std::flush;
}

} // namespace oncekey
