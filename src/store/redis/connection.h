// Connection: one connection to a server, on which commands are sent without waiting and answered in their order.
//
// What happens to a command is always told, once: its reply (an error of the server is a reply too), or a fault.
// `unavailable` means that no byte of it left, `timeout` that it may have been executed. When the answer to any command
// is overdue the whole connection is closed, since those behind it could only be later still.
//
// With `replicas` given, a group of commands that is written together is followed by WAIT, and none of its covered
// commands is answered before so many replicas have confirmed.
//
// Used on the loop's thread alone. Kept by shared pointers: whoever runs in a callback may drop theirs.
#pragma once

#include "store/redis/loop.h"
#include "store/redis/redis_url.h"
#include "store/redis/reply.h"

#include <oncekey/result.h>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace oncekey::redis {

struct ConnectionOptions {
  std::string user;
  std::string password;
  int database = 0;
  asio::ssl::context* tls = nullptr; // null for none
  int replicas = 0;
  Millis replicas_timeout{};
};

// Whether an answer has to wait for the replicas.
enum class Covered { no, yes };

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Answered = std::function<void(Result<OwnedReply>)>;

  Connection(asio::io_context& context, Host host, const ConnectionOptions& options);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Connects, logs in and selects the database. Once; a connection that failed or was closed stays closed.
  Task<Status> open(Deadline deadline);

  void send(std::string_view command, Deadline deadline, Answered answered, Covered covered = Covered::no);
  Task<Result<OwnedReply>> ask(std::string command, Deadline deadline);

  void close(const std::string& why);
  bool is_open() const { return state_ == State::open; }
  bool is_idle() const { return pending_.empty(); }
  const Host& host() const { return host_; }
  const std::string& why_closed() const { return why_closed_; }

  // Called once when an open connection closes, with everything sent on it answered.
  void on_closed(std::function<void()> told) { closed_ = std::move(told); }
  // Messages of channels that were subscribed to.
  void on_message(std::function<void(Reply)> told) { message_ = std::move(told); }

 private:
  enum class State { fresh, open, closed };
  enum class Kind { plain, covered, wait };
  struct Pending {
    Answered answered;
    Deadline deadline;
    std::uint64_t begins_at; // in the stream of all bytes sent
    Kind kind;
  };
  struct Held {
    Answered answered;
    OwnedReply reply;
  };
  using TlsStream = asio::ssl::stream<Socket&>;

  Task<Status> connect(Deadline deadline);
  Task<Status> start_tls();
  Task<Status> log_in(Deadline deadline);
  void enqueue(std::string_view command, Deadline deadline, Answered answered, Kind kind);
  void flush();
  void written(error_code error);
  void read();
  void received(error_code error, std::size_t bytes);
  void take(OwnedReply reply);
  void answer_held(const OwnedReply& confirmed);
  void watch(Deadline deadline);
  void look_for_overdue();
  std::string lost_because(error_code error) const;

  asio::io_context& context_;
  const Host host_;
  const ConnectionOptions& options_;
  Socket socket_;
  std::unique_ptr<TlsStream> tls_;
  State state_ = State::fresh;
  std::string why_closed_;
  std::function<void()> closed_;
  std::function<void(Reply)> message_;

  ReplyReader replies_;
  std::array<char, 64u << 10> received_; // large enough for the answers of a few batches
  std::string outgoing_;                 // not yet handed to the socket
  std::string being_written_;
  bool writing_ = false;
  bool flush_is_due_ = false;
  bool wait_is_due_ = false;
  Deadline wait_deadline_;
  std::uint64_t enqueued_bytes_ = 0;
  std::uint64_t handed_bytes_ = 0;
  std::deque<Pending> pending_;
  std::vector<Held> held_;
  Timer overdue_;
  Deadline watched_ = Deadline::max();
};

} // namespace oncekey::redis
