#include "net/transport.h"

#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <openssl/ssl.h>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kTlsGoodbye{500};
constexpr std::size_t kTlsOverhead = 256;

void skip(std::array<asio::const_buffer, 2>& buffers, std::size_t count) {
  const std::size_t of_first = std::min(count, buffers[0].size());
  buffers[0] += of_first;
  buffers[1] += count - of_first;
}

bool is_ip_literal(const std::string& host) {
  error_code ec;
  asio::ip::make_address(host, ec);
  return !ec;
}

} // namespace

struct Transport::Tls {
  Tls(Socket& socket, asio::ssl::context& context) : stream(socket, context) {}
  asio::ssl::stream<Socket&> stream;
};

Transport::Transport(Socket socket, Timers& timers)
    : timers_(timers), socket_(std::move(socket)), timer_(timers, [this] {
        expired_ = true;
        error_code ignored;
        socket_.cancel(ignored);
      }) {
  if (socket_.is_open()) tune();
}

void Transport::tune() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
}

Transport::~Transport() { close(); }

Task<error_code> Transport::serve_tls(asio::ssl::context& context) {
  tls_ = std::make_unique<Tls>(socket_, context);
  const auto [error] = co_await tls_->stream.async_handshake(asio::ssl::stream_base::server, use_task);
  SSL* const session = tls_->stream.native_handle();
  const X509* const shown = error ? nullptr : SSL_get0_peer_certificate(session);
  if (shown != nullptr && SSL_get_verify_result(session) == X509_V_OK) certificate_ = name_of(*shown);
  co_return error;
}

Task<error_code> Transport::connect_tls(asio::ssl::context& context, const std::string& host) {
  tls_ = std::make_unique<Tls>(socket_, context);
  // SNI names hosts, never addresses (RFC 6066). The macro around this call casts in a way we do not compile.
  if (!is_ip_literal(host)) {
    SSL_ctrl(tls_->stream.native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
             const_cast<char*>(host.c_str()));
  }
  tls_->stream.set_verify_mode(asio::ssl::verify_peer);
  tls_->stream.set_verify_callback(asio::ssl::host_name_verification(host));
  const auto [error] = co_await tls_->stream.async_handshake(asio::ssl::stream_base::client, use_task);
  co_return error;
}

void Transport::without_tls() { tls_.reset(); }

Task<IoResult> Transport::read_some(asio::mutable_buffer buffer) {
  if (expired_) co_return IoResult{asio::error::timed_out, 0};
  if (tls_) {
    const auto [error, bytes] = co_await tls_->stream.async_read_some(buffer, use_task);
    co_return IoResult{error, bytes};
  }
  const auto [error, bytes] = co_await socket_.async_read_some(buffer, use_task);
  co_return IoResult{error, bytes};
}

Task<IoResult> Transport::write(std::string_view first, std::string_view second) {
  return begin_write(first, second, nullptr);
}

Task<IoResult> Transport::write_at_pace(std::string_view first, std::string_view second, Pace& pace) {
  expired_ = false; // an earlier deadline says nothing of this write
  return begin_write(first, second, &pace);
}

Task<IoResult> Transport::begin_write(std::string_view first, std::string_view second, Pace* pace) {
  if (expired_) return IoResult{asio::error::timed_out, 0};
  TwoBuffers buffers{asio::buffer(first.data(), first.size()), asio::buffer(second.data(), second.size())};
  if (tls_) return write_rest(buffers, 0, pace);
  // Small messages nearly always fit into the socket's buffer: no reason to go through the event loop for them.
  error_code error;
  const std::size_t written = socket_.write_some(buffers, error);
  if (error && error != asio::error::would_block) return IoResult{error, written};
  if (written == first.size() + second.size()) return IoResult{{}, written};
  skip(buffers, written);
  return write_rest(buffers, written, pace);
}

Task<IoResult> Transport::write_rest(TwoBuffers rest, std::size_t written, Pace* pace) {
  while (asio::buffer_size(rest) > 0) {
    error_code failed;
    std::size_t went = 0;
    MonotonicTime before;
    if (pace != nullptr) {
      before = std::chrono::steady_clock::now();
      deadline(before + pace->left());
    }
    if (tls_) {
      const auto [error, bytes] = co_await tls_->stream.async_write_some(rest, use_task);
      failed = error;
      went = bytes;
    } else {
      const auto [error, bytes] = co_await socket_.async_write_some(rest, use_task);
      failed = error;
      went = bytes;
    }
    written += went;
    if (failed) co_return IoResult{failed, written};
    // Closed while it wrote: whoever did that need not keep the bytes any longer.
    if (!socket_.is_open()) co_return IoResult{asio::error::operation_aborted, written};
    skip(rest, went);
    if (asio::buffer_size(rest) == 0) break;
    // A deadline that passed at this very moment has passed: the peer is not given another one.
    if (expired_) co_return IoResult{asio::error::timed_out, written};
    if (pace != nullptr) pace->moved(went, std::chrono::steady_clock::now() - before);
  }
  co_return IoResult{{}, written};
}

bool Transport::has_room_for(std::size_t bytes) {
  int waiting = 0;
  int room = 0;
  socklen_t length = sizeof room;
  const int fd = socket_.native_handle();
  if (::ioctl(fd, SIOCOUTQ, &waiting) != 0 || ::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &length) != 0)
    return false;
  // The kernel counts its own overhead: half of what it names is there for bytes, and TLS adds a little to each record.
  return 2 * (static_cast<std::size_t>(waiting) + bytes + kTlsOverhead) <= static_cast<std::size_t>(room);
}

bool Transport::quiet() {
  if (!socket_.is_open()) return false;
  char byte;
  if (tls_) {
    // What was decrypted, or waits to be, is in TLS's own buffers, where the kernel does not see it.
    error_code error;
    tls_->stream.read_some(asio::buffer(&byte, 1), error);
    return error == asio::error::would_block;
  }
  const ssize_t got = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

Task<void> Transport::shutdown_send() {
  if (tls_ && !expired_) {
    // Waits for the peer's goodbye too; one that does not care to send it must not hold us up.
    deadline_after(kTlsGoodbye);
    co_await tls_->stream.async_shutdown(use_task);
  }
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Transport::close() {
  timer_.clear();
  error_code ignored;
  socket_.close(ignored);
}

void Transport::reset() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

} // namespace oncekey
