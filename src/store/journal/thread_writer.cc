#include "store/journal/durable_writer.h"

#include <pthread.h>
#include <sys/uio.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace oncekey {
namespace {

// 0, or the errno of what failed.
int write_durably(int file, std::span<const char> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    const ssize_t wrote = ::pwritev2(file, &part, 1, static_cast<off_t>(offset), RWF_DSYNC);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
  return 0;
}

class ThreadWriter final : public DurableWriter {
 public:
  explicit ThreadWriter(Written written) : written_(std::move(written)), thread_([this] { run(); }) {}
  ~ThreadWriter() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    asked_.notify_one();
    thread_.join();
  }

  void write(int file, std::span<const char> bytes, std::uint64_t offset) override {
    {
      const std::lock_guard lock(mutex_);
      next_ = {file, bytes, offset};
      ++begun_;
    }
    asked_.notify_one();
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this, begun = begun_] { return ended_ >= begun; });
  }

 private:
  struct Asked {
    int file;
    std::span<const char> bytes;
    std::uint64_t offset;
  };

  void run() {
    pthread_setname_np(pthread_self(), "journal");
    while (const std::optional<Asked> next = take()) {
      written_(write_durably(next->file, next->bytes, next->offset));
      {
        const std::lock_guard lock(mutex_);
        ++ended_;
      }
      idle_.notify_all();
    }
  }
  std::optional<Asked> take() {
    std::unique_lock lock(mutex_);
    asked_.wait(lock, [this] { return next_ || stopping_; });
    return std::exchange(next_, std::nullopt);
  }

  const Written written_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable idle_;
  std::uint64_t begun_ = 0;
  std::uint64_t ended_ = 0;
  std::optional<Asked> next_;
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace

std::unique_ptr<DurableWriter> make_thread_writer(DurableWriter::Written written) {
  return std::make_unique<ThreadWriter>(std::move(written));
}

} // namespace oncekey
