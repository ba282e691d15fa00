// Progress: says how far long work has come: a bar with the time left on a terminal, a line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace oncekey {

// "3.4 GiB"
std::string shown_bytes(std::uint64_t bytes);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `what` is the work, as in "verifying". `width` is that of the terminal; 0 if there is none.
  Progress(std::ostream& out, std::string what, std::size_t width, Clock::time_point now = Clock::now())
      : out_(out), what_(std::move(what)), width_(width), begun_(now) {}
  ~Progress() { end(); }
  Progress& operator=(Progress&&) = delete;

  void tell(std::uint64_t done, std::uint64_t total, Clock::time_point now = Clock::now());
  // Ends the bar's line: before anything else is said.
  void end();

 private:
  std::string text(std::uint64_t done, std::uint64_t total, Clock::time_point now) const;

  std::ostream& out_;
  const std::string what_;
  const std::size_t width_;
  const Clock::time_point begun_;
  Clock::time_point told_{};
  bool drawn_ = false;
};

} // namespace oncekey
