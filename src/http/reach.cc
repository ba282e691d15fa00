#include "http/reach.h"

#include "net/task.h"

#include <boost/asio/ssl/context.hpp>

#include <fmt/format.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace oncekey {
namespace {

struct Addresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

Result<std::unique_ptr<addrinfo, Addresses>> resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return unavailable(fmt::format("the name {} cannot be resolved: {}", host, ::gai_strerror(error)));
  return std::unique_ptr<addrinfo, Addresses>(found);
}

std::string text_of(const addrinfo& address) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(address.ai_addr, address.ai_addrlen, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "?";
  return fmt::format("{}:{}", host.data(), port.data());
}

// 0, or the errno of the failure.
int connect_within(int socket, const addrinfo& address, Millis timeout) {
  if (::connect(socket, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waiting{socket, POLLOUT, 0};
  const int ready = ::poll(&waiting, 1, static_cast<int>(timeout.count()));
  if (ready == 0) return ETIMEDOUT;
  if (ready < 0) return errno;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Status shake_hands(const Descriptor& connected, const ReachedServer& server, Millis timeout) {
  error_code ec;
  asio::ssl::context tls(asio::ssl::context::tls_client);
  if (server.ca_file.empty()) {
    tls.set_default_verify_paths(ec);
  } else {
    tls.load_verify_file(server.ca_file, ec);
  }
  if (ec) return invalid(fmt::format("{}: {}", server.ca_file, ec.message()));
  // Blocking, with an end to each wait.
  const int number = connected.number();
  const int flags = ::fcntl(number, F_GETFL);
  ::fcntl(number, F_SETFL, flags & ~O_NONBLOCK);
  const timeval patience{timeout.count() / 1000, (timeout.count() % 1000) * 1000};
  ::setsockopt(number, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(tls.native_handle()), SSL_free);
  if (!session || SSL_set_fd(session.get(), number) != 1) return unavailable("no TLS session could be made");
  SSL_ctrl(session.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
           const_cast<char*>(server.host.c_str())); // OpenSSL copies it
  SSL_set_verify(session.get(), SSL_VERIFY_PEER, nullptr);
  X509_VERIFY_PARAM* const expected = SSL_get0_param(session.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(expected, server.host.c_str()) != 1)
    X509_VERIFY_PARAM_set1_host(expected, server.host.c_str(), 0);
  if (SSL_connect(session.get()) == 1) {
    SSL_shutdown(session.get());
    return ok_status();
  }
  const long verified = SSL_get_verify_result(session.get());
  ERR_clear_error();
  if (verified != X509_V_OK)
    return unavailable(fmt::format("its certificate is not trusted: {}", X509_verify_cert_error_string(verified)));
  return unavailable("the TLS handshake failed: does the server speak TLS on this port?");
}

} // namespace

Status try_to_bind(const std::string& host, std::uint16_t port) {
  const auto found = resolve(host, port, AI_PASSIVE | AI_NUMERICHOST);
  if (!found) return found.fault();
  const addrinfo& where = **found;
  const Descriptor socket(::socket(where.ai_family, where.ai_socktype | SOCK_CLOEXEC, where.ai_protocol));
  // As the listener does: a port that was just let go can be had.
  const int yes = 1;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (socket.number() < 0 || ::bind(socket.number(), where.ai_addr, where.ai_addrlen) != 0 ||
      ::listen(socket.number(), 1) != 0)
    return unavailable(errno == EADDRINUSE ? "another process has this port" : std::strerror(errno));
  return ok_status();
}

Result<std::string> try_to_connect(const ReachedServer& server, Millis timeout) {
  const auto found = resolve(server.host, server.port, AI_ADDRCONFIG);
  if (!found) return found.fault();
  std::string why = "it has no address";
  for (const addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
    const Descriptor socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (socket.number() < 0) {
      why = std::strerror(errno);
      continue;
    }
    if (const int error = connect_within(socket.number(), *at, timeout); error != 0) {
      why = fmt::format("{}: {}", text_of(*at), std::strerror(error));
      continue;
    }
    if (server.tls) {
      if (const Status secure = shake_hands(socket, server, timeout); !secure) return secure.fault();
    }
    return text_of(*at);
  }
  return unavailable(why);
}

} // namespace oncekey
