#include "workers/http_post.h"

#include "workers/without_sigpipe.h"

#include <fmt/format.h>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

namespace oncekey {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

// A head longer than this is not an answer to our kind of question.
constexpr std::size_t kAnswerHeadMax = 64 * 1024;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

struct AddressFree {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
struct ContextFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct TlsFree {
  void operator()(SSL* tls) const { SSL_free(tls); }
};

bool wait_for(int fd, short events, SteadyTime deadline) {
  const auto left = std::chrono::duration_cast<Millis>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd waited{fd, events, 0};
  return ::poll(&waited, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 3'600'000))) == 1;
}

Result<Descriptor> connect_one(const addrinfo& address, SteadyTime deadline) {
  Descriptor fd(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
  if (fd.get() < 0) return unavailable(std::strerror(errno));
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return unavailable(std::strerror(errno));
    if (!wait_for(fd.get(), POLLOUT, deadline)) return unavailable("no connection in time");
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return unavailable(std::strerror(error));
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

Result<Descriptor> connect_to(const PostUrl& url, SteadyTime deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (const int code = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &raw); code != 0) {
    return unavailable(fmt::format("{}: {}", url.host, ::gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, AddressFree> found(raw);
  Fault last = unavailable("no address");
  for (const addrinfo* address = found.get(); address; address = address->ai_next) {
    auto connected = connect_one(*address, deadline);
    if (connected.ok()) return connected;
    last = std::move(connected).fault();
  }
  return unavailable(fmt::format("{}:{}: {}", url.host, url.port, last.message));
}

// Plain or TLS, both with a deadline.
class Stream {
 public:
  explicit Stream(Descriptor fd) : fd_(std::move(fd)) {}

  Status secure(const std::string& host, SteadyTime deadline) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (!context_ || SSL_CTX_set_default_verify_paths(context_.get()) != 1) return unavailable("TLS cannot be set up");
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    tls_.reset(SSL_new(context_.get()));
    // What SSL_set_tlsext_host_name does, without its C cast.
    const auto name_it = [&] {
      return SSL_ctrl(tls_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                      const_cast<char*>(host.c_str())) == 1;
    };
    if (!tls_ || !name_it() || SSL_set1_host(tls_.get(), host.c_str()) != 1 || SSL_set_fd(tls_.get(), fd_.get()) != 1) {
      return unavailable("TLS cannot be set up");
    }
    for (;;) {
      const int done = SSL_connect(tls_.get());
      if (done == 1) return ok_status();
      if (!again(done, deadline)) return unavailable("the TLS handshake failed");
    }
  }

  // How many bytes went; 0 at the end or after the deadline, -1 on an error.
  ssize_t write_some(std::string_view bytes, SteadyTime deadline) {
    for (;;) {
      if (tls_) {
        const int done = SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()));
        if (done > 0) return done;
        if (!again(done, deadline)) return -1;
      } else {
        const ssize_t done = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (done >= 0) return done;
        if (!retry_later(POLLOUT, deadline)) return -1;
      }
    }
  }

  ssize_t read_some(char* into, std::size_t size, SteadyTime deadline) {
    for (;;) {
      if (tls_) {
        const int done = SSL_read(tls_.get(), into, static_cast<int>(size));
        if (done > 0) return done;
        if (SSL_get_error(tls_.get(), done) == SSL_ERROR_ZERO_RETURN) return 0;
        if (!again(done, deadline)) return -1;
      } else {
        const ssize_t done = ::recv(fd_.get(), into, size, 0);
        if (done >= 0) return done;
        if (!retry_later(POLLIN, deadline)) return -1;
      }
    }
  }

 private:
  bool again(int done, SteadyTime deadline) {
    switch (SSL_get_error(tls_.get(), done)) {
      case SSL_ERROR_WANT_READ:
        return wait_for(fd_.get(), POLLIN, deadline);
      case SSL_ERROR_WANT_WRITE:
        return wait_for(fd_.get(), POLLOUT, deadline);
      default:
        ERR_clear_error();
        return false;
    }
  }
  bool retry_later(short events, SteadyTime deadline) {
    if (errno == EINTR) return true;
    return (errno == EAGAIN || errno == EWOULDBLOCK) && wait_for(fd_.get(), events, deadline);
  }

  Descriptor fd_;
  std::unique_ptr<SSL_CTX, ContextFree> context_;
  std::unique_ptr<SSL, TlsFree> tls_;
};

std::string message_of(const PostUrl& url, const Headers& headers, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n{}", url.target,
                     url.authority, headers.lines(), body.size(), body);
}

// The status of a whole head. Interim answers (1xx) are skipped.
std::optional<int> final_status(std::string& head) {
  for (;;) {
    const std::size_t end = head.find("\r\n\r\n");
    if (end == std::string::npos) return std::nullopt;
    int status = 0;
    if (head.size() < 12 || !head.starts_with("HTTP/1.") || head[8] != ' ' ||
        std::from_chars(head.data() + 9, head.data() + 12, status).ptr != head.data() + 12) {
      return 0;
    }
    if (status >= 200) return status;
    head.erase(0, end + 4);
  }
}

Result<int> read_status(Stream& stream, SteadyTime deadline) {
  std::string head;
  std::array<char, 4096> piece;
  while (head.size() < kAnswerHeadMax) {
    const ssize_t got = stream.read_some(piece.data(), piece.size(), deadline);
    if (got <= 0) return Fault{FaultKind::timeout, "the connection ended or went silent before an answer"};
    head.append(piece.data(), static_cast<std::size_t>(got));
    if (const auto status = final_status(head)) {
      if (*status == 0) return Fault{FaultKind::timeout, "the answer is not HTTP/1.1"};
      return *status;
    }
  }
  return Fault{FaultKind::timeout, "the head of the answer does not end"};
}

} // namespace

Result<PostUrl> parse_post_url(std::string_view url) {
  PostUrl parsed;
  std::string_view rest = url;
  if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    parsed.tls = true;
    rest.remove_prefix(8);
  } else {
    return invalid("a URL to POST to begins with http:// or https://");
  }
  const std::size_t path = rest.find_first_of("/?");
  parsed.authority = rest.substr(0, path);
  parsed.target = path == std::string_view::npos ? "/" : std::string(rest.substr(path));
  if (parsed.target.starts_with('?')) parsed.target.insert(0, "/");
  parsed.target = parsed.target.substr(0, parsed.target.find('#'));
  std::string_view host = parsed.authority;
  if (host.find('@') != std::string_view::npos) return invalid("put credentials into HttpSinkOptions::authorization");
  parsed.port = parsed.tls ? "443" : "80";
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    parsed.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  parsed.host = host;
  const bool visible = url.find_first_of(" \r\n\t") == std::string_view::npos;
  if (parsed.host.empty() || parsed.port.empty() || !visible)
    return invalid("the URL to POST to names no host or port");
  return parsed;
}

Result<int> http_post(const PostUrl& url, const Headers& headers, std::string_view body, const PostTimeouts& timeouts) {
  const SteadyTime connect_by = std::chrono::steady_clock::now() + timeouts.connect;
  const WithoutSigpipe quiet;
  auto connected = connect_to(url, connect_by);
  if (!connected.ok()) return std::move(connected).fault();
  Stream stream(std::move(connected).value());
  if (url.tls) {
    if (auto secured = stream.secure(url.host, connect_by); !secured.ok()) return std::move(secured).fault();
  }
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeouts.answer;
  const std::string message = message_of(url, headers, body);
  for (std::string_view left = message; !left.empty();) {
    const ssize_t sent = stream.write_some(left, deadline);
    // A server may answer before it has read everything, and close; its answer still counts.
    if (sent <= 0) break;
    left.remove_prefix(static_cast<std::size_t>(sent));
  }
  return read_status(stream, deadline);
}

} // namespace oncekey
