// transport: a byte stream over TCP, with or without TLS, that can time out.
#pragma once

#include "base/certificate.h"
#include "net/pace.h"
#include "net/task.h"
#include "net/timers.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// One read of a socket at a time; large enough that a usual message needs one.
inline constexpr std::size_t kReadBytes = 16u << 10;

struct IoResult {
  error_code error;
  std::size_t bytes = 0;
};

class Transport {
 public:
  Transport(Socket socket, Timers& timers);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // TLS on top of the open connection. As a client, `host` is verified against the certificate.
  Task<error_code> serve_tls(asio::ssl::context& context);
  Task<error_code> connect_tls(asio::ssl::context& context, const std::string& host);

  // After a failed handshake: what follows is sent in clear.
  void without_tls();

  Task<IoResult> read_some(asio::mutable_buffer buffer);
  // Writes both pieces whole; `bytes` says how much went out before an error.
  Task<IoResult> write(std::string_view first, std::string_view second = {});
  // The same for a peer that may take its time as long as it keeps the pace. The pace outlives the write.
  Task<IoResult> write_at_pace(std::string_view first, std::string_view second, Pace& pace);

  // The kernel takes this much at once: writing it does not wait for the peer.
  bool has_room_for(std::size_t bytes);

  // From now on, every wait for the peer ends with an error at that moment; expired() tells this error from others.
  // A new deadline forgets that an earlier one has passed: a connection that timed out may still be told so.
  void deadline(MonotonicTime due) {
    expired_ = false;
    timer_.at(due);
  }
  void deadline_after(std::chrono::milliseconds delay) { deadline(std::chrono::steady_clock::now() + delay); }
  void no_deadline() { timer_.clear(); }
  bool expired() const { return expired_; }

  // Socket options for an open connection; the constructor applies them to a socket that is open already.
  void tune();

  // No data and no end of stream is waiting to be read: safe to send another request on.
  bool quiet();
  bool secure() const { return tls_ != nullptr; }
  // As a server: of the client's certificate, which the handshake has verified. Null if it has shown none.
  const CertificateName* certificate() const { return certificate_ ? &*certificate_ : nullptr; }
  Socket& socket() { return socket_; }
  Timers& timers() { return timers_; }
  // Ends our direction in good order (with a TLS goodbye where there is TLS).
  Task<void> shutdown_send();
  void close();
  // Makes the peer see a reset: the only honest end to a response that broke off in the middle.
  void reset();

 private:
  struct Tls;
  using TwoBuffers = std::array<asio::const_buffer, 2>;
  Task<IoResult> begin_write(std::string_view first, std::string_view second, Pace* pace);
  Task<IoResult> write_rest(TwoBuffers rest, std::size_t written, Pace* pace);

  Timers& timers_;
  Socket socket_;
  std::unique_ptr<Tls> tls_;
  std::optional<CertificateName> certificate_;
  bool expired_ = false;
  Timer timer_;
};

} // namespace oncekey
