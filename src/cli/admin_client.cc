#include "cli/admin_client.h"

#include "http/parser.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace oncekey {
namespace {

// Listing a large store reads all of it.
constexpr timeval kPatience{30, 0};
// A record's body is at most max_stored_body, and base64 in JSON makes it a third longer.
constexpr std::size_t kLargestAnswer = 256u << 20;

class BlockingSocket {
 public:
  ~BlockingSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  // All answer 0, or the errno that kept them from it.
  int connect(const sockaddr* address, socklen_t length) {
    fd_ = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return errno;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    return ::connect(fd_, address, length) == 0 ? 0 : errno;
  }
  int send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return errno;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return 0;
  }
  // Until the peer closes, which it was asked to do.
  int receive_all(std::string& out) {
    char piece[16u << 10];
    for (;;) {
      const ssize_t got = ::recv(fd_, piece, sizeof piece, 0);
      if (got == 0) return 0;
      if (got < 0) return errno;
      if (out.size() + static_cast<std::size_t>(got) > kLargestAnswer) return EMSGSIZE;
      out.append(piece, static_cast<std::size_t>(got));
    }
  }

 private:
  int fd_ = -1;
};

int connect_to(BlockingSocket& socket, const Address& address) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port);
  if (::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr) == 1) {
    return socket.connect(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(address.port);
  if (::inet_pton(AF_INET6, address.host.c_str(), &v6.sin6_addr) == 1) {
    return socket.connect(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
  }
  return EADDRNOTAVAIL;
}

std::optional<AdminAnswer> parse_answer(std::string_view bytes) {
  const auto length = head_length(bytes);
  ResponseParser parser(HeadOnly::no);
  ResponseHead head;
  if (!length || parser.parse_head(bytes.substr(0, *length), head)) return std::nullopt;
  bytes.remove_prefix(*length);
  AdminAnswer answer{head.status, {}};
  while (!parser.done()) {
    BodyPiece piece;
    if (bytes.empty() || parser.parse_body(bytes, piece)) break;
    answer.body.append(piece.bytes);
    if (piece.consumed == 0) break;
    bytes.remove_prefix(piece.consumed);
  }
  if (!parser.done() && parser.end_of_input()) return std::nullopt;
  return answer;
}

} // namespace

Result<AdminAnswer> AdminClient::exchange(std::string_view method, std::string_view target,
                                          std::string_view json) const {
  const bool v6 = address_.host.find(':') != std::string::npos;
  const std::string authority = fmt::format("{}{}{}:{}", v6 ? "[" : "", address_.host, v6 ? "]" : "", address_.port);
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: oncekey-keys\r\nConnection: close\r\n",
                                    method, target, authority);
  if (!token_.empty()) request += fmt::format("Authorization: Bearer {}\r\n", token_);
  if (method == "POST") request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", json.size());
  request.append("\r\n").append(json);

  BlockingSocket socket;
  std::string bytes;
  int error = connect_to(socket, address_);
  if (error == 0) error = socket.send(request);
  if (error == 0) error = socket.receive_all(bytes);
  if (error != 0) {
    const bool late = error == EAGAIN || error == EWOULDBLOCK || error == EINPROGRESS;
    return unavailable(fmt::format("cannot reach the gateway's admin listener at {}: {}", authority,
                                   late ? "no answer in time" : std::strerror(error)));
  }
  std::optional<AdminAnswer> answer = parse_answer(bytes);
  if (!answer) return unavailable(fmt::format("what listens at {} does not speak HTTP as a gateway does", authority));
  return *std::move(answer);
}

} // namespace oncekey
