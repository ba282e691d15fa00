// Journal: the keys of operations, on disk: operations without a final answer, and named operations that have ended.
//
// A text file that is only appended to. The first line names the format, every other one is
//
//   CHECKSUM begin OPERATION FINGERPRINT KEY MILLISECONDS RUN what it is, for people
//   CHECKSUM end OPERATION KEY MILLISECONDS UNTIL STATUS
//   CHECKSUM forget OPERATION KEY
//
// with sixteen hex digits of SHA-256 over the rest of the line in front. A key is written and synced before the first
// byte of its request is sent. When the answer is final, a named operation is ended: it is found under its name, with
// its key, until UNTIL. Others are forgotten.
//
// Runs. Each run that goes on with an operation adds a `begin` line with the same key and the next RUN before it sends.
// That line opens an operation that had ended with a refusal: a kill in the middle of the new run must not leave it
// ended. A refusal that one run got says nothing about what another run is doing, so that it ends or forgets the
// operation only for the latest run. An operation that ended with success stays ended however often it is sent again.
//
// Crashes. A line that a crash cut short is at the end of the file and fails its checksum: it is cut off by the next
// writer. Its operation never got to send anything. A bad line with good ones behind it is damage, and a fault: a key
// that was lost that way could be an operation done twice.
//
// Processes. Every step locks the file (flock) and first reads what others have added. When most of the file is
// history, it is replaced by a new one without it; a process that waited for the lock of the old file
// notices that the name stands for another one now.
//
// Threads. All members may be called from any thread.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace oncekey {

// How an operation ended, and for how long its name stands for that.
struct JournalEnd {
  Time at{};
  Time until{};
  int status = 0; // of the final answer
};

struct JournalEntry {
  std::string fingerprint; // of the request; hex
  std::string key;
  Time begun{};
  std::string summary; // for people; no line breaks
  std::optional<JournalEnd> ended = std::nullopt;
  std::uint64_t run = 1; // the latest one
};

enum class IfEnded { find, begin_anew };

class Journal {
 public:
  // Makes the file, readable by its owner alone, if it is not there. No operation begins in a file of `bytes_max` or
  // more that cannot be made shorter.
  static Result<std::unique_ptr<Journal>> open(const std::string& path, std::uint64_t bytes_max = 128u << 20);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  struct Begun {
    JournalEntry entry;
    bool found = false; // it was there already
  };
  using Check = std::function<Status(const JournalEntry&)>;
  // The operation's entry: the one that is open, or that has ended and is not over yet at `entry.begun`; or else this
  // one, durable when the call returns. `operation` is a word without blanks. An entry that is found is shown to
  // `check`: after its fault nothing is written. Otherwise the entry is returned with its number for this run, and with
  // the end it had before this run.
  Result<Begun> begin(const std::string& operation, const JournalEntry& entry, IfEnded if_ended = IfEnded::find,
                      const Check& check = {});
  // Ends the operation if it is there under that key, durably. False if it is not, or if `only_run` is given and is not
  // the latest run.
  Result<bool> end(const std::string& operation, std::string_view key, const JournalEnd& how,
                   std::optional<std::uint64_t> only_run = std::nullopt);
  // Drops the operation; the rest as for end(). `now` as for begin().
  Result<bool> forget(const std::string& operation, std::string_view key, Time now,
                      std::optional<std::uint64_t> only_run = std::nullopt);
  Result<std::optional<JournalEntry>> find(const std::string& operation);

 private:
  Journal(std::string path, std::uint64_t bytes_max) : path_(std::move(path)), bytes_max_(bytes_max) {}

  class Locked;
  Status reopen();
  Status catch_up();
  Status take_line(std::string_view line);
  Status append(std::string_view content);
  Status compact_if_worthwhile(Time now);
  Status compact(Time now);
  Status make_room(Time now);
  Result<Begun> go_on(const std::string& operation, JournalEntry found, Time now);
  Result<bool> close(const std::string& operation, std::string_view key, std::optional<std::uint64_t> only_run,
                     const std::string& line, Time now);
  Fault failed(std::string_view doing) const;

  const std::string path_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;
  int fd_ = -1;
  std::uint64_t read_to_ = 0; // the end of the last good line
  std::uint64_t lines_ = 0;   // good ones, of use or not
  bool torn_ = false;         // there is a torn line behind read_to_
  std::map<std::string, JournalEntry> entries_;
};

} // namespace oncekey
