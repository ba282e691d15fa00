// LineWriter: hands lines to a function that writes them, on a thread of its own, so that a slow disk does not delay an
// event loop.
//
// Lines are gathered in memory and written once a second, or earlier when there are many. When the disk does not keep
// up, lines are left out and counted: a log is not worth the memory of the service it is about.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace oncekey {

// Safe to use from several threads.
class LineWriter {
 public:
  // Gets the lines, each with its newline, and how many were left out since the last call. Called once a second also
  // without any. One call at a time, mostly on the thread of the LineWriter.
  using Write = std::function<void(std::string_view lines, std::uint64_t left_out)>;

  explicit LineWriter(Write write) : write_(std::move(write)), thread_([this] { run(); }) {}
  ~LineWriter() { stop(); }
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Takes the line, which ends in a newline, and returns at once.
  void append(std::string_view line);
  // Returns when everything taken so far was written.
  void flush();
  // The same, and calls `change` before anything else is written.
  void between_writes(const std::function<void()>& change);
  // Writes what is left and ends the thread. Once.
  void stop();

 private:
  void run();
  void write_gathered();

  const Write write_;

  std::mutex mutex_; // guards what follows
  std::condition_variable wake_;
  std::string gathered_;
  std::uint64_t left_out_ = 0;
  bool stopping_ = false;

  std::mutex write_mutex_; // held while write_ is called; taken before mutex_
  std::thread thread_;
};

} // namespace oncekey
