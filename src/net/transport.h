// Transport: a byte stream over TCP, with or without TLS, that can time out.
//
// At most one task reads and one writes at a time; both may wait at once. Belongs to its loop's thread.
#pragma once

#include "base/certificate.h"
#include "net/loop.h"
#include "net/tls.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace oncekey {

struct SocketAddress;

// One read of a socket at a time; large enough that a usual message needs one.
inline constexpr std::size_t kReadBytes = 16u << 10;

struct IoResult {
  std::error_code error;
  std::size_t bytes = 0;
};

// How slow a peer may be.
//
// A time-out between two bytes lets a client hold memory and places for hours by sending one byte now and then. So a
// peer must keep a minimum rate: each `quantum` of bytes (the rate times the patience) has to move within `patience`
// of waiting for that peer. Bytes that came early are not saved up: a client that sent nearly everything at once has
// no longer for the rest than any other. Time in which nothing waits for the peer does not count, as while an upstream
// reads slowly.
class Pace {
 public:
  using Duration = std::chrono::steady_clock::duration;

  Pace(std::chrono::milliseconds patience, std::uint64_t bytes_per_second)
      : patience_(patience),
        quantum_(std::max<std::uint64_t>(1, bytes_per_second * static_cast<std::uint64_t>(patience.count()) / 1000)),
        left_(patience) {}

  // How long the next wait may last.
  Duration left() const { return left_; }
  // `bytes` moved after a wait of that length.
  void moved(std::uint64_t bytes, Duration waited) {
    moved_ += bytes;
    left_ -= waited;
    if (moved_ < quantum_) return;
    moved_ = 0;
    left_ = patience_;
  }

 private:
  std::chrono::milliseconds patience_;
  std::uint64_t quantum_;
  std::uint64_t moved_ = 0;
  Duration left_;
};

class Transport {
 public:
  // Over an open, non-blocking socket, or over none yet.
  explicit Transport(Loop& loop, Descriptor socket = {});
  ~Transport();

  // A new socket, connected to that address, in place of the one before. net/connect.h does all of it.
  Task<std::error_code> connect(const SocketAddress& address);
  // TLS on top of the open connection. As a client, `host` is verified against the certificate.
  Task<std::error_code> serve_tls(const TlsContext& context);
  Task<std::error_code> connect_tls(const TlsContext& context, const std::string& host);

  // After a failed handshake: what follows is sent in clear.
  void without_tls();

  // At least one byte, unless there is an error.
  Task<IoResult> read_some(std::span<char> room);
  // The same without a coroutine of its own, for the reads that every request waits for:
  //   while (!transport.read_now(room, got)) co_await transport.readable();
  // read_now() is false if the read has to wait.
  bool read_now(std::span<char> room, IoResult& out);
  class Readable;
  Readable readable();
  // Writes both pieces whole; `bytes` says how much went out before an error. With a pace, which outlives the write,
  // the peer may take its time as long as it keeps it, whatever the deadline.
  Task<IoResult> write(std::string_view first, std::string_view second = {}, Pace* pace = nullptr);

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
  // The same connection once more, for another process.
  Descriptor duplicate() const;
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
  // The same, or the loop's next turn where this connection has had enough of this one.
  WatchedDescriptor::Ready until_next_read();
  Task<IoResult> wait_and_read(std::span<char> room);
  IoResult try_to_read(std::span<char> room);
  IoResult try_to_write(const Pieces& pieces);
  Task<IoResult> write_rest(Pieces rest, std::size_t written, Pace* pace);
  std::error_code unusable() const;    // why nothing can be read or written now
  std::error_code interrupted() const; // why a wait has ended that nothing has happened to

  WatchedDescriptor socket_;
  std::unique_ptr<Tls> tls_;
  std::optional<CertificateName> certificate_;
  std::error_code wait_failed_; // of the last readable(), for the next read_now()
  unsigned in_a_row_ = 0;       // reads and writes since the last wait
  bool expired_ = false;
  Timer timer_;
};

class Transport::Readable {
 public:
  explicit Readable(Transport& transport) : transport_(transport), ready_(transport.until_next_read()) {}
  bool await_ready() const noexcept { return ready_.await_ready(); }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> caller) {
    ready_.await_suspend(caller);
  }
  void await_resume() {
    // A deadline that passed while this task was about to go on has passed: there is no other to end the next wait.
    if (!ready_.await_resume() || transport_.expired_) transport_.wait_failed_ = transport_.interrupted();
  }

 private:
  Transport& transport_;
  WatchedDescriptor::Ready ready_;
};
inline Transport::Readable Transport::readable() { return Readable(*this); }

} // namespace oncekey
