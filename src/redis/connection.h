// RedisConnection: one connection to a server, on which commands are sent without waiting and answered in their order.
//
// Every command ends once: with its reply (an error of the server is a reply too), or with a fault. `unavailable` means
// that no byte of it left, `timeout` that it may have been executed. When the answer to any command is overdue the
// whole connection is closed, since the answers behind it could only be later still.
//
// With wait=N in the URL, the commands that are written together are followed by WAIT, and none of the covered ones is
// answered before so many replicas have confirmed.
//
// Belongs to its loop's thread. Kept by shared pointers: a callback may drop the last one of its caller.
#pragma once

#include "net/loop.h"
#include "net/transport.h"
#include "redis/reply.h"

#include <array>
#include <deque>
#include <functional>
#include <span>

namespace oncekey::redis {

using Clock = std::chrono::steady_clock;

struct ConnectionOptions {
  RedisUrl url;          // with the password of its file
  Millis call_timeout{}; // the URL's, else what was given
  TlsContext tls;        // null for none
};
// As the URL says. Reads the password file and the certificates that it names.
Result<ConnectionOptions> connection_options(RedisUrl url, Millis call_timeout);

// Does the answer wait for the replicas?
enum class Covered { no, yes };

class RedisConnection : public std::enable_shared_from_this<RedisConnection> {
 public:
  using Answered = std::function<void(Result<OwnedReply>)>;

  RedisConnection(Loop& loop, Host host, const ConnectionOptions& options);
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  // Connects, logs in and selects the database. Once; a connection that failed or was closed stays closed.
  Task<Status> open(MonotonicTime deadline);

  void send(std::string_view command, MonotonicTime deadline, Answered answered, Covered covered = Covered::no);
  // Sends a command and waits for its reply.
  Task<Result<OwnedReply>> ask(std::string command, MonotonicTime deadline);
  template <class... Words>
  Task<Result<OwnedReply>> ask(MonotonicTime deadline, const Words&... words) {
    return ask(command({words...}), deadline);
  }
  // The same, with an error of the server as a fault.
  template <class... Words>
  Task<Result<OwnedReply>> get(MonotonicTime deadline, const Words&... words) {
    return refuse_error(ask(deadline, words...), host_);
  }
  // Sends all commands and then waits: one round trip. A reply or a fault for each, in their order.
  Task<std::vector<Result<OwnedReply>>> ask_all(std::vector<std::string> commands, MonotonicTime deadline);

  void close(const std::string& why);
  bool is_open() const { return state_ == State::open; }
  const Host& host() const { return host_; }
  const std::string& why_closed() const { return why_closed_; }

  // Called once when an open connection closes, with everything sent on it answered.
  void on_closed(std::function<void()> told) { closed_ = std::move(told); }
  // Called with the messages of channels that were subscribed to.
  void on_message(std::function<void(RedisReply)> told) { message_ = std::move(told); }

 private:
  enum class State { fresh, open, closed };
  enum class Kind { plain, covered, wait };
  struct Pending {
    Answered answered;
    MonotonicTime deadline;
    std::uint64_t begins_at; // in the stream of all bytes sent
    Kind kind;
  };
  struct Held {
    Answered answered;
    OwnedReply reply;
  };

  static Task<Result<OwnedReply>> refuse_error(Task<Result<OwnedReply>> asked, Host from);
  Task<Status> log_in(MonotonicTime deadline);
  void enqueue(std::string_view command, MonotonicTime deadline, Answered answered, Kind kind);
  Task<void> write_outgoing();
  Task<void> read_replies();
  void take(OwnedReply reply);
  void answer_held(const OwnedReply& confirmed);
  void watch(MonotonicTime deadline);
  void close_if_overdue();
  void lost(std::error_code error);

  Loop& loop_;
  const Host host_;
  const ConnectionOptions options_;
  std::unique_ptr<Transport> transport_; // null before it is open
  State state_ = State::fresh;
  std::string why_closed_;
  std::function<void()> closed_;
  std::function<void(RedisReply)> message_;

  ReplyReader replies_;
  std::array<char, 64u << 10> received_; // large enough for the answers of a few batches
  std::string outgoing_;                 // not yet handed to the socket
  std::string being_written_;
  bool writing_ = false; // or about to
  bool wait_is_due_ = false;
  MonotonicTime wait_deadline_;
  std::uint64_t enqueued_bytes_ = 0;
  std::uint64_t handed_bytes_ = 0;
  std::deque<Pending> pending_;
  std::vector<Held> held_;
  Timer overdue_;
  MonotonicTime watched_ = MonotonicTime::max();
};

// The same for a caller without an event loop. Runs one on the caller's thread until the answers are there or the time
// is up.
//
// Connects when it is first used, and again after the connection was lost. In a cluster it follows the server's
// redirections, so that all commands of one run() must be for one slot. For one thread at a time.
class BlockingClient {
 public:
  // redis_url.h has the URLs. A call_timeout in it comes before `timeout`.
  static Result<std::unique_ptr<BlockingClient>> make(RedisUrl url, Millis timeout);

  // Sends all commands, then waits for all answers: one for each, in their order. Error replies are among the answers.
  // A fault of kind `timeout` means that it is not known whether the command was executed.
  std::vector<Result<OwnedReply>> run(std::span<const std::string> commands);
  // The next run() connects anew.
  void disconnect();

 private:
  explicit BlockingClient(ConnectionOptions options) : options_(std::move(options)) {}
  std::vector<Result<OwnedReply>> exchange(std::span<const std::string> commands, MonotonicTime deadline);

  const ConnectionOptions options_;
  Loop loop_;
  std::shared_ptr<RedisConnection> connection_;
  std::optional<Host> moved_to_; // by the last redirection
  std::size_t turn_ = 0;         // of the URL's hosts
};

} // namespace oncekey::redis
