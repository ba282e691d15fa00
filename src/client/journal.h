// Journal: the keys of operations whose answer is not final, on disk.
//
// A text file that is only appended to. The first line names the format, every other one is
//
//   CHECKSUM begin OPERATION FINGERPRINT KEY MILLISECONDS what it is, for people
//   CHECKSUM end OPERATION KEY
//
// with sixteen hex digits of SHA-256 over the rest of the line in front. A key is written and synced before the first
// byte of its request is sent, and ended when the answer is final.
//
// Crashes. A line that a crash cut short is at the end of the file and fails its checksum: it is cut off by the next
// writer. Its operation never got to send anything. A bad line with good ones behind it is damage, and a fault: a key
// that was lost that way could be an operation done twice.
//
// Processes. Every step locks the file (flock) and first reads what others have added. When most of the file is
// history, it is replaced by a new one with the open keys alone; a process that waited for the lock of the old file
// notices that the name stands for another one now.
//
// Threads. All members from any thread.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

struct JournalEntry {
  std::string fingerprint; // of the request; hex
  std::string key;
  Time begun{};
  std::string summary; // for people; no line breaks
};

class Journal {
 public:
  // Makes the file, readable by its owner alone, if it is not there.
  static Result<std::unique_ptr<Journal>> open(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  struct Begun {
    JournalEntry entry;
    bool found = false; // it was there already
  };
  // The operation's entry: the open one, or else this one, durable when the call returns. `operation` is a word without
  // blanks.
  Result<Begun> begin(const std::string& operation, const JournalEntry& entry);
  // Closes the operation if it is open under that key, durably. False if it was not.
  Result<bool> end(const std::string& operation, std::string_view key);
  Result<std::optional<JournalEntry>> find(const std::string& operation);

 private:
  explicit Journal(std::string path) : path_(std::move(path)) {}

  class Locked;
  Status reopen();
  Status catch_up();
  Status take_line(std::string_view line);
  Status append(std::string_view content);
  Status compact_if_worthwhile();
  Fault failed(std::string_view doing) const;

  const std::string path_;
  std::mutex mutex_;
  int fd_ = -1;
  std::uint64_t read_to_ = 0; // the end of the last good line
  std::uint64_t lines_ = 0;   // good ones, open or not
  bool torn_ = false;         // there is a torn line behind read_to_
  std::map<std::string, JournalEntry> open_;
};

} // namespace oncekey
