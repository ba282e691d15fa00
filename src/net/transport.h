// Transport: a byte stream over TCP, with or without TLS, that can time out.
//
// At most one task reads and one writes at a time; both may wait at once. Belongs to its loop's thread.
#pragma once

#include "base/certificate.h"
#include "net/descriptor.h"
#include "net/errors.h"
#include "net/loop.h"
#include "net/pace.h"
#include "net/tls.h"
#include "net/watched_descriptor.h"

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace oncekey {

struct SocketAddress;

// One read of a socket at a time; large enough that a usual message needs one.
inline constexpr std::size_t kReadBytes = 16u << 10;

struct IoResult {
  std::error_code error;
  std::size_t bytes = 0;
};

class Transport {
 public:
  // Over an open, non-blocking socket, or over none yet.
  explicit Transport(Loop& loop, Descriptor socket = {});
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // A new socket, connected to that address, in place of the one before. net/connect.h does all of it.
  Task<std::error_code> connect(const SocketAddress& address);
  // TLS on top of the open connection. As a client, `host` is verified against the certificate.
  Task<std::error_code> serve_tls(const TlsContext& context);
  Task<std::error_code> connect_tls(const TlsContext& context, const std::string& host);

  // After a failed handshake: what follows is sent in clear.
  void without_tls();

  // At least one byte, unless there is an error.
  Task<IoResult> read_some(std::span<char> room);
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

  // No data and no end of stream is waiting to be read: safe to send another request on. An end that arrived within the
  // last Loop::kFresh may be missed, as one that is still on its way is.
  bool quiet();
  bool secure() const { return tls_ != nullptr; }
  // As a server: of the client's certificate, which the handshake has verified. Null if it has shown none.
  const CertificateName* certificate() const { return certificate_ ? &*certificate_ : nullptr; }
  bool open() const { return socket_.open(); }
  Loop& loop() const { return socket_.loop(); }
  // Ends our direction in good order (with a TLS goodbye where there is TLS).
  Task<void> shutdown_send();
  // The same for a plain connection, at once.
  void end_sending();
  void close();
  // Makes the peer see a reset: the only honest end to a response that broke off in the middle.
  void reset();

 private:
  class Tls;
  using Pieces = std::array<std::string_view, 2>;
  Task<std::error_code> shake_hands();
  // For a read, handshake or goodbye that would block. Waits as the reader, whatever TLS needs.
  WatchedDescriptor::Ready until_read_goes_on();
  Task<IoResult> wait_and_read(std::span<char> room);
  IoResult try_to_read(std::span<char> room);
  Task<IoResult> begin_write(std::string_view first, std::string_view second, Pace* pace);
  IoResult try_to_write(const Pieces& pieces);
  Task<IoResult> write_rest(Pieces rest, std::size_t written, Pace* pace);
  std::error_code unusable() const;    // why nothing can be read or written now
  std::error_code interrupted() const; // why a wait has ended that nothing has happened to

  WatchedDescriptor socket_;
  std::unique_ptr<Tls> tls_;
  std::optional<CertificateName> certificate_;
  unsigned in_a_row_ = 0; // reads and writes since the last wait
  bool expired_ = false;
  Timer timer_;
};

} // namespace oncekey
