// DurableWriter: brings one batch at a time to the disk, and says when a power cut can no longer take it away.
//
// Two ways, the same to those above: io_uring, from the thread that asks, with the answer on an event loop's thread;
// and a thread that writes and waits, where the kernel or a container does not allow io_uring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace oncekey {

class Loop;

class DurableWriter {
 public:
  // 0 once the bytes are durable, else the errno of what failed; then nothing is known about what is on disk.
  using Written = std::function<void(int error)>;

  virtual ~DurableWriter() = default;

  // One write at a time: the next one after `written` was called. From any thread. The bytes stay where they are until
  // then; their address, size and offset are multiples of kBlockBytes.
  virtual void write(int file, std::span<const char> bytes, std::uint64_t offset) = 0;
  // Waits until `written` has been called for the write under way, which there is.
  virtual void wait() = 0;
  // Runs `work` once the turn of the event loop under way is over, so that all requests of a turn go into one write.
  // False where there is no loop, and `work` is not taken.
  virtual bool after_turn(std::function<void()> /*work*/) { return false; }
};

// Calls `written` on a thread of its own.
std::unique_ptr<DurableWriter> make_thread_writer(DurableWriter::Written written);

// Calls `written` on the loop's thread, or in wait(). Null if the kernel does not allow io_uring here. wait() and the
// destructor are called on that thread, or when the loop does not run.
std::unique_ptr<DurableWriter> make_ring_writer(Loop& loop, DurableWriter::Written written);

} // namespace oncekey
