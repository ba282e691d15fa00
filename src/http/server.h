// server: accepts connections and turns them into exchanges.
//
// One listener feeds all threads in turn, so that a port that is already taken is an error at start and not a second
// process silently sharing it. A connection lives on one thread from its first byte to its last.
#pragma once

#include "base/log.h"
#include "base/shares.h"
#include "http/exchange.h"
#include "net/listener.h"

namespace oncekey {

// What a thread does with its requests. handle() runs on that thread alone.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual Task<void> handle(Exchange& exchange) = 0;
};

// A thread that connections can be put on.
struct Lane {
  Loop& loop;
  Handler& handler;
};

struct ServerOptions {
  ExchangeTimeouts timeouts;
  std::uint64_t max_header_bytes;
  // Counts connections, in all and by client address, and the memory of request heads that are not whole.
  std::shared_ptr<Shares> shares;
  std::vector<std::string> trusted_proxies; // exempt: their clients are counted by X-Forwarded-For
  std::string tls_cert;                     // both or none
  std::string tls_key;
  std::string setting_prefix{}; // in front of the names of these settings in messages, as in admin_tls_cert
  std::string client_ca{};      // clients may show a certificate of these authorities; others are not accepted
  Headers answer_headers{};     // in every answer that does not have one of the name itself
  // Of a listener with few connections: where they are all used, one that waits for its request gives way to a new one.
  // Otherwise a client that opens all of them and sends nothing would keep a liveness probe out.
  bool silent_give_way = false;
};

// Connections that were closed at once because a limit was reached, or because they speak another protocol.
struct RefusedConnections {
  std::atomic<std::uint64_t> all_used{0};
  std::atomic<std::uint64_t> address_over{0};
  std::atomic<std::uint64_t> spoke_tls{0};        // on a plain port
  std::atomic<std::uint64_t> spoke_plain_http{0}; // on a TLS port
};

// What a drain does with a connection that has no request under way.
enum class IdleConnections {
  close,
  keep, // for another process: its client notices nothing. One with TLS is closed: its keys cannot be passed on
};

class Server {
 public:
  // Binds and listens, or goes on with a socket that does. A fault says which address and why.
  static Result<std::unique_ptr<Server>> listen(const std::string& host, std::uint16_t port, ServerOptions options,
                                                std::vector<Lane> lanes, Log& log, Descriptor inherited = {});
  ~Server();

  // Starts accepting; returns at once.
  void start();
  // From now on every answer says `Connection: close`, so that clients move on; connections are still taken. From any
  // thread.
  void leave() { last_answers_.store(true); }
  // Stops accepting and lets running exchanges end, with `Connection: close` unless their connections are kept. A
  // connection without its first request has a moment to send it. From any thread.
  void drain(IdleConnections idle = IdleConnections::close);
  // The connections that the drain has kept. Once there are none open.
  std::vector<Descriptor> take_kept();
  // Goes on with a connection that another process has kept. After start(), from any thread.
  void adopt(Descriptor connection);
  // The listening socket once more, for another process. Not after drain().
  Descriptor duplicate_listener() const { return listener_.duplicate(); }
  // Open connections, of all threads.
  std::uint32_t connections() const { return connections_.load(std::memory_order_relaxed); }
  const RefusedConnections& refused_connections() const { return refused_; }
  const std::string& address() const { return address_; }

  // A certificate for the connections that come from now on: read first, and then used. Null where the listener is
  // plain. load_tls() reads client_ca anew too. From any thread.
  Result<TlsContext> load_tls(const std::string& cert_file, const std::string& key_file) const;
  void use_tls(TlsContext context);

 private:
  struct Connection;
  struct Accepted;
  using ConnectionHook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  using ConnectionList = boost::intrusive::list<Connection, boost::intrusive::base_hook<ConnectionHook>,
                                                boost::intrusive::constant_time_size<false>>;

  Server(ServerOptions options, std::vector<Lane> lanes, Log& log);
  Task<void> accept_loop();
  // Counts the connection, or says why it cannot be served.
  Grant admit(Accepted& accepted);
  // Ends the oldest connection of the first lane that waits for its request, of this address or, without one, of any.
  // Its place is free at once. False if there is none.
  bool end_a_silent_one(const Party* of);
  // Closes at once: a connection beyond the limit must not cost a descriptor for longer than this call.
  void turn_away(Accepted accepted, Grant why);
  void warn_of_a_crowd(const Party& address);
  Task<void> serve(std::size_t lane, Accepted accepted);
  Task<void> serve_requests(Handler& handler, Connection& connection);
  // To the next lane.
  void hand_out(Accepted accepted);
  // A connection without a request under way ends here; or its socket is kept.
  void end_idle(Connection& connection);
  Task<void> refuse(Connection& connection, const ParseFault& fault);
  // A client that took the port for the other kind hears so at once instead of waiting for a time-out.
  Task<void> refuse_tls(Connection& connection);
  Task<void> refuse_plain_http(Connection& connection);
  // Closes in good order: our side first, then what the client still sends is dropped for a moment.
  Task<void> linger(Connection& connection);

  ServerOptions options_;
  std::vector<Lane> lanes_;
  Log& log_;
  TlsContext tls() const;
  mutable std::mutex tls_mutex_; // over the next; held for as long as it takes to copy it
  TlsContext tls_;
  Listener listener_;
  std::string address_;              // with the port that was given
  std::vector<ConnectionList> open_; // by lane, each touched by its own thread alone
  std::atomic<std::uint32_t> connections_{0};
  std::size_t next_lane_ = 0;             // of the first lane's thread
  std::atomic<bool> last_answers_{false}; // they say `Connection: close`
  std::atomic<bool> draining_{false};
  std::atomic<bool> keeping_{false}; // what is idle
  std::mutex kept_mutex_;
  std::vector<Descriptor> kept_;
  RefusedConnections refused_;
};

} // namespace oncekey
