#include "net/transport.h"

#include "net/socket_address.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <new>

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kTlsGoodbye{500};
constexpr std::size_t kTlsOverhead = 256;
// Two pieces up to here become one TLS record.
constexpr std::size_t kTlsRecordBytes = 16u << 10;
// Reads or writes that need no wait, before the other tasks of the loop have their turn.
constexpr unsigned kCallsInARowMax = 16;

// Records, and handshake messages in them, that may come without data between them. Usual are a few: session tickets
// and KeyUpdates.
constexpr unsigned kRecordsWithoutDataMax = 32;

// Not an error of the connection: the call has to wait.
const std::error_code kWouldBlock = std::make_error_code(std::errc::resource_unavailable_try_again);

void set_no_delay(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void skip(std::array<std::string_view, 2>& pieces, std::size_t count) {
  const std::size_t of_first = std::min(count, pieces[0].size());
  pieces[0].remove_prefix(of_first);
  pieces[1].remove_prefix(count - of_first);
}

WatchedDescriptor& socket_of(BIO* bio) { return *static_cast<WatchedDescriptor*>(BIO_get_data(bio)); }

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE, and knows nothing of what the loop knows.
int bio_read(BIO* bio, char* into, int bytes) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = socket_of(bio).receive(into, static_cast<std::size_t>(bytes));
  if (got < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

int bio_write(BIO* bio, const char* from, int bytes) {
  BIO_clear_retry_flags(bio);
  iovec piece{const_cast<char*>(from), static_cast<std::size_t>(bytes)};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const ssize_t went = socket_of(bio).send(message);
  if (went < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
  return static_cast<int>(went);
}

long bio_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// One SSL_read_ex() would take KeyUpdates and refuse new handshakes for as long as they come, and with it the loop.
void count_record(int sent, int, int what, const void*, std::size_t, SSL* session, void* without_data) {
  if (sent != 0 || (what != SSL3_RT_HEADER && what != SSL3_RT_HANDSHAKE)) return;
  if (++*static_cast<unsigned*>(without_data) > kRecordsWithoutDataMax)
    SSL_set_shutdown(session, SSL_RECEIVED_SHUTDOWN); // ends the read
}

const BIO_METHOD* bio_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "oncekey socket");
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

} // namespace

// OpenSSL on a socket. Each call does what it can at once; `wants_write` says what it waits for if that is not all.
class Transport::Tls {
 public:
  Tls(WatchedDescriptor& socket, const TlsContext& context) : context_(context), session_(SSL_new(context.get())) {
    BIO* const bio = BIO_new(bio_method());
    if (session_ == nullptr || bio == nullptr) {
      SSL_free(session_);
      BIO_free(bio);
      throw std::bad_alloc();
    }
    BIO_set_data(bio, &socket);
    BIO_set_init(bio, 1);
    SSL_set_bio(session_, bio, bio);
  }
  ~Tls() { SSL_free(session_); }
  Tls& operator=(Tls&&) = delete;

  SSL* session() { return session_; }
  bool wants_write() const { return wants_write_; }

  std::error_code handshake() {
    const std::error_code error = attempt([this](std::size_t&) { return SSL_do_handshake(session_); }).error;
    if (!error) {
      SSL_ctrl(session_, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, &without_data_);
      SSL_set_msg_callback(session_, count_record);
    }
    return error;
  }
  IoResult read(std::span<char> room) {
    const auto call = [&](std::size_t& bytes) { return SSL_read_ex(session_, room.data(), room.size(), &bytes); };
    const IoResult result = attempt(call);
    if (!result.error) without_data_ = 0;
    return result;
  }
  IoResult write(std::string_view from) {
    return attempt([&](std::size_t& bytes) { return SSL_write_ex(session_, from.data(), from.size(), &bytes); });
  }
  // Without an error once both sides have said goodbye.
  std::error_code goodbye() {
    const auto call = [this](std::size_t&) {
      const int done = SSL_shutdown(session_);
      return done == 0 ? SSL_shutdown(session_) : done;
    };
    return attempt(call).error;
  }
  bool has_pending() const { return SSL_has_pending(session_) == 1; }

 private:
  template <class Call>
  IoResult attempt(Call call) {
    ERR_clear_error();
    errno = 0;
    std::size_t bytes = 0;
    const int done = call(bytes);
    return done == 1 ? IoResult{{}, bytes} : IoResult{error_of(done), 0};
  }
  std::error_code error_of(int result) {
    const int system_error = errno;
    switch (SSL_get_error(session_, result)) {
      case SSL_ERROR_WANT_READ:
        wants_write_ = false;
        return kWouldBlock;
      case SSL_ERROR_WANT_WRITE:
        wants_write_ = true;
        return kWouldBlock;
      case SSL_ERROR_ZERO_RETURN:
        return StreamError::ended;
      case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        if (system_error == 0) return StreamError::cut_off;
        return {system_error, std::system_category()};
      default:
        return take_handshake_error(session_);
    }
  }

  TlsContext context_;
  SSL* session_;
  bool wants_write_ = false;
  unsigned without_data_ = 0; // records since the last data
};

Transport::Transport(Loop& loop, Descriptor socket)
    : socket_(loop, std::move(socket)), timer_(loop, [this] {
        expired_ = true;
        socket_.interrupt();
      }) {
  if (socket_.open()) set_no_delay(socket_.number());
}

Transport::~Transport() { close(); }

std::error_code Transport::unusable() const {
  if (!socket_.open()) return closed_error();
  return expired_ ? timed_out_error() : std::error_code();
}

std::error_code Transport::interrupted() const { return socket_.open() ? timed_out_error() : closed_error(); }

WatchedDescriptor::Ready Transport::until_read_goes_on() {
  return tls_ && tls_->wants_write() ? socket_.until_readable_or_writable() : socket_.until_readable();
}

Task<std::error_code> Transport::connect(const SocketAddress& address) {
  tls_.reset();
  Descriptor made(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.open()) co_return last_system_error();
  set_no_delay(made.number());
  socket_.assign(std::move(made));
  const int begun = ::connect(socket_.number(), address.get(), address.length);
  if (begun == 0) co_return std::error_code();
  if (errno != EINPROGRESS && errno != EINTR) co_return last_system_error();
  if (!co_await socket_.until_writable()) co_return interrupted();
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket_.number(), SOL_SOCKET, SO_ERROR, &error, &size);
  co_return std::error_code(error, std::system_category());
}

Task<std::error_code> Transport::serve_tls(const TlsContext& context) {
  tls_ = std::make_unique<Tls>(socket_, context);
  SSL_set_accept_state(tls_->session());
  const std::error_code error = co_await shake_hands();
  const X509* const shown = error ? nullptr : SSL_get0_peer_certificate(tls_->session());
  if (shown != nullptr && SSL_get_verify_result(tls_->session()) == X509_V_OK) certificate_ = name_of(*shown);
  co_return error;
}

Task<std::error_code> Transport::connect_tls(const TlsContext& context, const std::string& host) {
  tls_ = std::make_unique<Tls>(socket_, context);
  SSL* const session = tls_->session();
  SSL_set_connect_state(session);
  X509_VERIFY_PARAM* const expected = SSL_get0_param(session);
  const bool is_ip = parse_ip(host).has_value();
  const int set = is_ip ? X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str())
                        : X509_VERIFY_PARAM_set1_host(expected, host.c_str(), 0);
  // Without a name to verify, OpenSSL accepts a certificate for any.
  if (set != 1 || host.empty()) co_return std::make_error_code(std::errc::invalid_argument);
  // SNI names hosts, never addresses (RFC 6066). The macro around this call casts in a way we do not compile.
  if (!is_ip)
    SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str()));
  co_return co_await shake_hands();
}

Task<std::error_code> Transport::shake_hands() {
  for (;;) {
    const std::error_code error = tls_->handshake();
    if (error != kWouldBlock) co_return error;
    if (!co_await until_read_goes_on() || expired_) co_return interrupted();
  }
}

void Transport::without_tls() { tls_.reset(); }

IoResult Transport::try_to_read(std::span<char> room) {
  if (tls_) return tls_->read(room);
  const ssize_t got = socket_.receive(room.data(), room.size());
  if (got > 0) return {{}, static_cast<std::size_t>(got)};
  if (got == 0) return {StreamError::ended, 0};
  return {errno == EAGAIN || errno == EWOULDBLOCK ? kWouldBlock : last_system_error(), 0};
}

bool Transport::read_now(std::span<char> room, IoResult& out) {
  out = {std::exchange(wait_failed_, {}), 0};
  if (!out.error) out.error = unusable();
  if (out.error) return true;
  if (++in_a_row_ > kCallsInARowMax) return false;
  out = try_to_read(room);
  if (out.error != kWouldBlock) return true;
  in_a_row_ = 0;
  return false;
}

WatchedDescriptor::Ready Transport::until_next_read() {
  return std::exchange(in_a_row_, 0) > kCallsInARowMax ? socket_.until_next_turn() : until_read_goes_on();
}

Task<IoResult> Transport::read_some(std::span<char> room) {
  IoResult result;
  if (read_now(room, result)) return result;
  return wait_and_read(room);
}

Task<IoResult> Transport::wait_and_read(std::span<char> room) {
  IoResult result;
  do {
    co_await readable();
  } while (!read_now(room, result));
  co_return result;
}

IoResult Transport::try_to_write(const Pieces& pieces) {
  if (tls_) {
    if (pieces[0].empty() || pieces[1].empty() || pieces[0].size() + pieces[1].size() > kTlsRecordBytes)
      return tls_->write(pieces[0].empty() ? pieces[1] : pieces[0]);
    return tls_->write(std::string(pieces[0]).append(pieces[1]));
  }
  std::array<iovec, 2> parts{};
  for (std::size_t i = 0; i < pieces.size(); ++i) parts[i] = {const_cast<char*>(pieces[i].data()), pieces[i].size()};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t went = socket_.send(message);
  if (went >= 0) return {{}, static_cast<std::size_t>(went)};
  return {errno == EAGAIN || errno == EWOULDBLOCK ? kWouldBlock : last_system_error(), 0};
}

Task<IoResult> Transport::write(std::string_view first, std::string_view second, Pace* pace) {
  if (pace != nullptr) expired_ = false; // an earlier deadline says nothing of this write
  if (const std::error_code ended = unusable()) return IoResult{ended, 0};
  Pieces pieces{first, second};
  const std::size_t all = first.size() + second.size();
  if (all == 0) return IoResult{};
  // Small messages nearly always fit into the socket's buffer: no reason to go through the event loop for them.
  const IoResult result = try_to_write(pieces);
  if (result.error && result.error != kWouldBlock) return result;
  if (result.bytes == all) return result;
  skip(pieces, result.bytes);
  return write_rest(pieces, result.bytes, pace);
}

Task<IoResult> Transport::write_rest(Pieces rest, std::size_t written, Pace* pace) {
  for (;;) {
    MonotonicTime before;
    if (pace != nullptr) {
      before = std::chrono::steady_clock::now();
      deadline(before + pace->left());
    }
    IoResult result = try_to_write(rest);
    while (result.error == kWouldBlock) {
      in_a_row_ = 0;
      // A TLS write waits for the peer to send only where it may begin a new handshake, which none of ours may.
      if (tls_ && !tls_->wants_write()) co_return IoResult{std::make_error_code(std::errc::protocol_error), written};
      if (!co_await socket_.until_writable() || expired_) co_return IoResult{interrupted(), written};
      result = try_to_write(rest);
    }
    written += result.bytes;
    if (result.error) co_return IoResult{result.error, written};
    skip(rest, result.bytes);
    if (rest[0].empty() && rest[1].empty()) co_return IoResult{{}, written};
    if (++in_a_row_ > kCallsInARowMax) {
      in_a_row_ = 0;
      co_await socket_.loop().next_turn();
    }
    // A deadline that passed at this very moment has passed: the peer is not given another one.
    if (const std::error_code ended = unusable()) co_return IoResult{ended, written};
    if (pace != nullptr) pace->moved(result.bytes, std::chrono::steady_clock::now() - before);
  }
}

bool Transport::has_room_for(std::size_t bytes) {
  int waiting = 0;
  int room = 0;
  socklen_t length = sizeof room;
  const int fd = socket_.number();
  if (::ioctl(fd, SIOCOUTQ, &waiting) != 0 || ::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &length) != 0)
    return false;
  // The kernel counts its own overhead: half of what it names is there for bytes, and TLS adds a little to each record.
  return 2 * (static_cast<std::size_t>(waiting) + bytes + kTlsOverhead) <= static_cast<std::size_t>(room);
}

bool Transport::quiet() {
  if (!socket_.open()) return false;
  socket_.loop().catch_up();
  if (socket_.quiet() && (!tls_ || !tls_->has_pending())) return true;
  char byte;
  // What was decrypted, or waits to be, is in TLS's own buffers, where the kernel does not see it.
  if (tls_) return tls_->read({&byte, 1}).error == kWouldBlock;
  const ssize_t got = ::recv(socket_.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

Task<void> Transport::shutdown_send() {
  if (tls_ && !expired_) {
    // Waits for the peer's goodbye too; one that does not care to send it must not hold us up.
    deadline_after(kTlsGoodbye);
    while (socket_.open() && tls_->goodbye() == kWouldBlock) {
      const bool goes_on = co_await until_read_goes_on();
      if (!goes_on || expired_) break;
    }
  }
  end_sending();
}

void Transport::end_sending() {
  if (socket_.open()) ::shutdown(socket_.number(), SHUT_WR);
}

Descriptor Transport::duplicate() const { return Descriptor(::fcntl(socket_.number(), F_DUPFD_CLOEXEC, 0)); }

void Transport::close() {
  timer_.clear();
  socket_.close();
}

void Transport::reset() {
  const linger at_once{1, 0};
  if (socket_.open()) ::setsockopt(socket_.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

} // namespace oncekey
