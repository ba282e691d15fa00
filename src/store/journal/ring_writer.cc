#include "net/loop.h"
#include "store/journal/durable_writer.h"

#include <liburing.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace oncekey {
namespace {

class RingWriter final : public DurableWriter {
 public:
  RingWriter(Loop& loop, Written written) : written_(std::move(written)), bell_(loop) {}
  ~RingWriter() override {
    if (usable_) io_uring_queue_exit(&ring_);
  }

  // Whether the kernel allows it.
  bool start() {
    Descriptor bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!bell.open() || io_uring_queue_init(kEntries, &ring_, 0) != 0) return false;
    usable_ = true;
    if (io_uring_register_eventfd(&ring_, bell.number()) != 0) return false;
    bell_.assign(std::move(bell));
    spawn(reap());
    return true;
  }

  void write(int file, std::span<const char> bytes, std::uint64_t offset) override {
    file_ = file;
    rest_ = bytes;
    offset_ = offset;
    error_ = submit();
    if (error_ != 0) bell_.loop().post([this] { tell_error(); });
  }
  void wait() override {
    if (error_ != 0) return tell_error();
    io_uring_cqe* done = nullptr;
    int waited = -EINTR;
    while (waited == -EINTR) waited = io_uring_wait_cqe(&ring_, &done);
    if (waited != 0) return written_(-waited);
    take(done);
  }
  bool after_turn(std::function<void()> work) override {
    bell_.loop().post(std::move(work));
    return true;
  }

 private:
  static constexpr unsigned kEntries = 4;

  int submit() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return EBUSY;
    io_uring_prep_write(entry, file_, rest_.data(), static_cast<unsigned>(rest_.size()), offset_);
    entry->rw_flags = RWF_DSYNC;
    for (;;) {
      const int submitted = io_uring_submit(&ring_);
      if (submitted == 1) return 0;
      if (submitted != -EINTR && submitted != -EAGAIN) return submitted < 0 ? -submitted : EIO;
    }
  }

  // The kernel rings for every write that has ended.
  Task<void> reap() {
    while (co_await bell_.until_readable()) {
      io_uring_cqe* done = nullptr;
      while (io_uring_peek_cqe(&ring_, &done) == 0) take(done);
    }
  }

  void tell_error() {
    if (const int error = std::exchange(error_, 0); error != 0) written_(error);
  }

  void take(io_uring_cqe* done) {
    const int result = done->res;
    io_uring_cqe_seen(&ring_, done);
    const bool tried_in_vain = result == -EINTR || result == -EAGAIN;
    if (result <= 0 && !tried_in_vain) return written_(result == 0 ? EIO : -result);
    if (result > 0) {
      rest_ = rest_.subspan(static_cast<std::size_t>(result));
      offset_ += static_cast<std::uint64_t>(result);
    }
    if (rest_.empty()) return written_(0);
    if (const int error = submit(); error != 0) written_(error);
  }

  const Written written_;
  io_uring ring_{};
  bool usable_ = false;
  int error_ = 0; // of a write that could not be submitted, until it is told
  int file_ = -1;
  std::span<const char> rest_;
  std::uint64_t offset_ = 0;
  WatchedDescriptor bell_; // an eventfd
};

} // namespace

std::unique_ptr<DurableWriter> make_ring_writer(Loop& loop, DurableWriter::Written written) {
  auto writer = std::make_unique<RingWriter>(loop, std::move(written));
  if (!writer->start()) return nullptr;
  return writer;
}

} // namespace oncekey
