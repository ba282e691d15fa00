// LineFile: lines appended to a file by the thread of a LineWriter, and left out when the disk does not keep up.
#pragma once

#include "base/line_writer.h"
#include "base/log.h"

#include <oncekey/result.h>

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
  void append(std::string_view line) { writer_.append(line); }
  // Returns when everything taken so far was written.
  void flush() { writer_.flush(); }
  // Closes the file and opens its path again: for log rotation. Lines taken before go into the old file.
  void reopen();

 private:
  LineFile(std::string path, int fd, Log& log);
  void write(std::string_view lines, std::uint64_t left_out);

  const std::string path_;
  Log& log_;
  int fd_; // changed between writes alone
  LineWriter writer_;
};

} // namespace oncekey
