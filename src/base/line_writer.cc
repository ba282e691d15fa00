#include "base/line_writer.h"

#include <chrono>
#include <utility>

namespace oncekey {
namespace {

constexpr std::chrono::seconds kWriteEvery{1};
// With this much gathered, the lines are written before the second is over.
constexpr std::size_t kWriteAt = 64u << 10;
// About ten seconds of lines of a busy gateway. Further lines are dropped and counted.
constexpr std::size_t kGatheredMost = 8u << 20;

} // namespace

void LineWriter::append(std::string_view line) {
  bool many = false;
  {
    const std::lock_guard lock(mutex_);
    if (gathered_.size() + line.size() > kGatheredMost) {
      ++left_out_;
      return;
    }
    many = gathered_.size() < kWriteAt && gathered_.size() + line.size() >= kWriteAt;
    gathered_.append(line);
  }
  if (many) wake_.notify_one();
}

void LineWriter::flush() {
  const std::lock_guard writing(write_mutex_);
  write_gathered();
}

void LineWriter::between_writes(const std::function<void()>& change) {
  const std::lock_guard writing(write_mutex_);
  write_gathered();
  change();
}

void LineWriter::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  flush();
}

// Under write_mutex_.
void LineWriter::write_gathered() {
  std::string lines;
  std::uint64_t left_out = 0;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(gathered_);
    left_out = std::exchange(left_out_, 0);
  }
  write_(lines, left_out);
}

void LineWriter::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kWriteEvery, [this] { return stopping_ || gathered_.size() >= kWriteAt; });
      if (stopping_) return;
    }
    flush();
  }
}

} // namespace oncekey
