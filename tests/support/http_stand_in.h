// A blocking HTTP server for tests, as small as they need: requests with a Content-Length, answered one after the
// other. Beast can do it as well, and takes the compiler longer than the test around it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace oncekey::testing_support {

struct ReceivedRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers; // with names in small letters
  std::string body;
};

// One client's connection, closed with the object.
class ServedConnection {
 public:
  explicit ServedConnection(int socket) : socket_(socket) {}
  ServedConnection(ServedConnection&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), read_(std::move(other.read_)) {}
  ServedConnection& operator=(ServedConnection&&) = delete;
  ~ServedConnection() {
    if (socket_ >= 0) ::close(socket_);
  }

  // Nothing when the client has closed the connection.
  std::optional<ReceivedRequest> next_request() {
    std::size_t end = 0;
    while ((end = read_.find("\r\n\r\n")) == std::string::npos) {
      if (!read_more()) return std::nullopt;
    }
    ReceivedRequest request = parse_head(std::string_view(read_).substr(0, end + 2));
    const auto length = request.headers.find("content-length");
    const std::size_t size = length == request.headers.end() ? 0 : std::strtoul(length->second.c_str(), nullptr, 10);
    while (read_.size() < end + 4 + size) {
      if (!read_more()) return std::nullopt;
    }
    request.body = read_.substr(end + 4, size);
    read_.erase(0, end + 4 + size);
    return request;
  }

  // False when the client is gone.
  bool respond(int status, std::string_view body) {
    std::string text = "HTTP/1.1 " + std::to_string(status) + " .\r\nContent-Length: " + std::to_string(body.size());
    text.append("\r\n\r\n").append(body);
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t count = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return true;
  }

 private:
  bool read_more() {
    char piece[4096];
    const ssize_t count = ::recv(socket_, piece, sizeof(piece), 0);
    if (count > 0) read_.append(piece, static_cast<std::size_t>(count));
    return count > 0;
  }

  static ReceivedRequest parse_head(std::string_view head) {
    ReceivedRequest request;
    bool first = true;
    for (std::size_t end = 0; (end = head.find("\r\n")) != std::string_view::npos; head.remove_prefix(end + 2)) {
      const std::string_view line = head.substr(0, end);
      const std::size_t split = line.find(first ? ' ' : ':');
      if (split == std::string_view::npos) throw std::runtime_error("not a line of a request: " + std::string(line));
      std::string name(line.substr(0, split));
      std::string_view rest = line.substr(split + 1);
      if (first) {
        request.method = std::move(name);
        request.target = rest.substr(0, rest.find(' '));
      } else {
        for (char& letter : name) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
        while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
        request.headers[std::move(name)] = rest;
      }
      first = false;
    }
    return request;
  }

  int socket_;
  std::string read_;
};

// A port of its own on the loopback address.
class ListeningPort {
 public:
  ListeningPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, generic, size) != 0 || ::listen(socket_, 128) != 0 ||
        ::getsockname(socket_, generic, &size) != 0) {
      throw std::runtime_error("no port to listen on");
    }
    port_ = ntohs(address.sin_port);
  }
  ListeningPort(const ListeningPort&) = delete;
  ListeningPort& operator=(const ListeningPort&) = delete;
  ~ListeningPort() { ::close(socket_); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Nothing after close_to_clients().
  std::optional<ServedConnection> accept() {
    const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return std::nullopt;
    return ServedConnection(connection);
  }
  // Wakes a thread that waits in accept().
  void close_to_clients() { ::shutdown(socket_, SHUT_RDWR); }

 private:
  int socket_;
  std::uint16_t port_ = 0;
};

} // namespace oncekey::testing_support
