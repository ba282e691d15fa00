// LineFile: lines appended to a file by a thread of its own, so that a slow disk does not delay an event loop.
//
// Lines are gathered in memory and written once a second, or earlier when there are many. When the disk does not keep
// up, lines are left out and counted: a log is not worth the memory of the service it is about.
#pragma once

#include "base/log.h"

#include <oncekey/result.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace oncekey {

// Safe to use from several threads.
class LineFile {
 public:
  // "-" is standard output. A new file is for its owner alone. `log` hears of lines that could not be written.
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, Log& log);
  // Whether open() would succeed for this user, without making the file.
  static Status check(const std::string& path);
  // Writes what is left.
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Takes the line, which ends in a newline, and returns at once.
  void append(std::string_view line);
  // Returns when everything taken so far was written.
  void flush();
  // Closes the file and opens its path again: for log rotation. Lines taken before go into the old file.
  void reopen();

 private:
  LineFile(std::string path, int fd, Log& log);
  void run();
  void write_gathered();

  const std::string path_;
  Log& log_;

  std::mutex mutex_; // guards what follows
  std::condition_variable wake_;
  std::string gathered_;
  std::uint64_t left_out_ = 0;
  bool stopping_ = false;

  std::mutex file_mutex_; // held while the file is written or exchanged; taken before mutex_
  int fd_;

  std::thread thread_;
};

} // namespace oncekey
