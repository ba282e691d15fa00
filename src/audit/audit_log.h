// AuditLog: what operators did and, where a route asks for it, what was decided about each request with a key.
//
// Lines hang together in a chain (chain.h). The chain's head is kept in the store about once a second while lines are
// written, on a thread of its own: neither a slow disk nor a slow store delays an event loop.
//
// The order of the two is what `oncekey audit verify` goes by: lines are synced before the head that names them is
// kept. So a head is never ahead of its file, whatever crashes: if it is, lines were removed.
//
// Memory is bounded (base/line_writer.h). Lines that cannot be kept, because the disk is full or slow, are counted, and
// the next line that can says how many there were.
#pragma once

#include "audit/audit_files.h"
#include "base/line_writer.h"
#include "base/log.h"

#include <atomic>
#include <chrono>

namespace oncekey {

// One line. What is empty or 0 is left out. Texts are cut to a length that keeps the line short.
struct AuditEvent {
  std::string_view event;
  std::string_view record{}; // the record's or job's id, 64 hex digits
  std::string_view key{};    // as the record shows it
  std::string_view route{};
  std::string_view decision{};
  int status = 0;
  std::uint64_t fence = 0;
  std::string_view trace{};       // of the request, 32 hex digits
  std::string_view first_trace{}; // of the request whose answer was replayed
  std::string_view who{};         // an operator
  std::string_view peer{};        // the address that the operator acted from
  std::string_view action{};
  std::string_view result{};
  std::string_view reason{};
};

class AuditLog {
 public:
  struct Options {
    std::string path;
    std::string gateway; // its name, in every line
    std::string chain;   // the name under which the store keeps the head
    std::string key;     // of the chain's hashes
    // The head that the store has; nothing if it does not know the chain. A new chain is made known to the store, with
    // the head of an empty one, before its log is opened for the first time: a crash then is no gap.
    std::optional<ChainHead> known{};
    std::uint64_t rotate_bytes = 0;
    // Rotated files are deleted once all their lines are older than this; 0: never. A line "removed" says which.
    std::chrono::milliseconds keep_files{0};
    // Keeps the head in the store; blocks. Empty where there is no place for it.
    std::function<Status(const ChainHead&)> keep{};
    std::chrono::milliseconds keep_every{1000};
    // What commands did to the store without a gateway (pending.h): hands each action to `put`, and then takes those
    // that are durable in the file out of the store. Asked at the start, and every `look_every`. Blocks.
    using Put = std::function<Status(const AuditEvent&)>;
    std::function<Status(const Put& put)> take_pending{};
    std::chrono::milliseconds look_every{60'000};
    Log& log;
  };
  // Writes the line "opened", which says what was found. A fault if the file cannot be written, is no audit log, or is
  // written by another process.
  static Result<std::unique_ptr<AuditLog>> open(Options options);
  // Whether the file is there and open() would refuse it, whichever process writes it. Makes and changes nothing.
  static Status check(const std::string& path);
  // Writes the line "closed" and keeps the last head.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Takes the line and returns at once. From any thread.
  void write(const AuditEvent& event);
  // Returns when everything taken so far is in the file, or could not be written.
  void flush() { writer_->flush(); }
  // The file was moved away by a log rotation: goes on in a new one.
  void reopen();
  const std::string& path() const { return options_.path; }

  struct Counts {
    std::uint64_t written = 0;
    std::uint64_t lost = 0;
    std::uint64_t behind = 0; // lines that the head in the store does not cover yet
  };
  Counts counts() const;

 private:
  AuditLog(Options options, AuditFd file, const AuditTail& tail);
  void open_line(const AuditTail& found, bool continues);
  // The members of a line that is about the log itself.
  std::string own_members(std::string_view event, const std::vector<LogField>& more) const;
  void write_lines(std::string_view lines, std::uint64_t left_out);
  // Appends lines, given by their members, to the chain and to the file. Returns how many could not be.
  std::uint64_t put(const std::vector<std::string_view>& lines);
  void rotate();
  // Deletes the rotated files that are old enough, and rotates a file that would otherwise never be.
  void remove_old_files();
  // Lines go into the file at the path from now on, if it is a new one.
  void continue_in_new_file(const std::string& before);
  enum class Due { now, by_time };
  void offer_head(Due due);
  // False if the store could not keep it.
  bool keep_offered_head();
  void keep_heads();
  void take_pending();

  const Options options_;
  const ChainHash hash_;

  // The next are touched between two calls of the writer's function alone.
  AuditFd file_;
  ChainHead head_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t file_first_ = 0;
  std::uint64_t torn_ = 0;  // bytes of a line at the end that is not whole
  bool open_ended_ = false; // the last of them is no newline
  std::uint64_t lost_ = 0;  // not said in a line yet
  std::chrono::steady_clock::time_point synced_at_{};
  std::optional<std::chrono::steady_clock::time_point> looked_for_old_at_;
  std::uint64_t synced_n_ = 0;

  std::atomic<bool> closing_{false};
  std::atomic<std::uint64_t> written_count_{0};
  std::atomic<std::uint64_t> lost_count_{0};
  std::atomic<std::uint64_t> head_n_{0};
  std::atomic<std::uint64_t> kept_n_{0};

  std::mutex keeper_mutex_; // guards the next three
  std::condition_variable keeper_wake_;
  ChainHead to_keep_;
  bool ending_ = false;
  std::thread keeper_;
  std::unique_ptr<LineWriter> writer_;
};

} // namespace oncekey
