#include "cli/handover.h"

#include "base/crypto.h"
#include "base/masked_url.h"
#include "store/open_store.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

namespace oncekey {
namespace {

// Both versions of a gateway must speak the same.
constexpr std::string_view kHello = "oncekey-handover 1 ";
constexpr std::string_view kRefusal = "refused ";
constexpr std::string_view kListener = "listener ";
constexpr std::string_view kGranted = "granted ";
constexpr std::string_view kDrain = "drain";
constexpr std::string_view kReleased = "released";
constexpr std::string_view kReady = "ready";
constexpr std::string_view kConnection = "connection ";
constexpr std::size_t kHandoverBytesMax = 4096;
// For an answer that needs no waiting for anything: a gateway that is stopped or hangs must not be waited for.
constexpr std::chrono::milliseconds kAnswerPatience{5000};
// How often and how long the name is asked for that another gateway has.
constexpr std::chrono::milliseconds kNameAskedEvery{100};
constexpr int kNameAsked = 50;

struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// A name without a file: it is gone with the process, and belongs to the network namespace, as the address does.
UnixAddress address_of(const std::string& listen_address) {
  UnixAddress out;
  out.address.sun_family = AF_UNIX;
  const std::string name = fmt::format("oncekey-handover/{}/{}", ::geteuid(), listen_address);
  const std::size_t bytes = std::min(name.size(), sizeof out.address.sun_path - 1);
  std::memcpy(out.address.sun_path + 1, name.data(), bytes);
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return out;
}

// Any process may take or use the name.
bool is_same_user(int socket, pid_t& pid) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  pid = peer.pid;
  return peer.uid == ::geteuid();
}

void set_timeout(int socket, std::chrono::milliseconds time) {
  const timeval value{time.count() / 1000, time.count() % 1000 * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value);
}

} // namespace

bool HandoverChannel::send(const std::string& text, int socket) const {
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  if (socket >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &socket, sizeof socket);
  }
  ssize_t sent = 0;
  while ((sent = ::sendmsg(socket_.number(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return sent >= 0;
}

HandoverMessage HandoverChannel::receive() const {
  std::string text(kHandoverBytesMax, '\0');
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  while ((got = ::recvmsg(socket_.number(), &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  HandoverMessage received;
  if (const cmsghdr* const head = CMSG_FIRSTHDR(&message);
      got > 0 && head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(head), sizeof number);
    received.socket = Descriptor(number);
  }
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  received.text = std::move(text);
  return received;
}

bool HandoverChannel::wait(std::chrono::milliseconds patience) const {
  pollfd asked{socket_.number(), POLLIN, 0};
  const auto due = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - std::chrono::steady_clock::now());
    const int ready = ::poll(&asked, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

bool HandoverChannel::other_is_gone() const {
  char byte = 0;
  return ::recv(socket_.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

std::string handover_name_of_store(const std::string& store_url) {
  std::string text = masked_url(store_url);
  if (const std::optional<std::string> folder = folder_of_store(store_url)) {
    struct stat found {};
    text = ::stat(folder->c_str(), &found) == 0 ? fmt::format("journal {} {}", found.st_dev, found.st_ino)
                                                : "journal that is not there";
  }
  return sha256_hex({text});
}

HandoverOffer::HandoverOffer(Loop& loop, Parts parts, Log& log)
    : parts_(std::move(parts)), log_(log), listener_(loop), waiting_for_drain_(loop) {
  spawn(offer());
}

Status HandoverOffer::listen() {
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const UnixAddress name = address_of(parts_.address);
  if (::bind(made.number(), name.get(), name.length) != 0 || ::listen(made.number(), 1) != 0)
    return unavailable(std::strerror(errno));
  listener_.assign(std::move(made));
  return ok_status();
}

Task<void> HandoverOffer::offer() {
  Status listens = listen();
  // The gateway that this one takes over from gives the name up when it begins to drain.
  for (int tried = 0; !listens && tried < kNameAsked; ++tried) {
    co_await sleep_for(listener_.loop(), kNameAskedEvery);
    listens = listen();
  }
  if (!listens) {
    log_.warning("handover_not_offered",
                 {{"reason", listens.fault().message}, {"meaning", "serve --take-over cannot replace this process"}});
  }
  while (listener_.open()) {
    Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.open() && talking_with_ != 0) {
      spawn(refuse_second(HandoverChannel(std::move(socket)), talking_with_));
    } else if (socket.open()) {
      spawn(talk(std::move(socket)));
    } else if (!co_await listener_.until_readable()) {
      break;
    }
  }
}

Task<void> HandoverOffer::talk(Descriptor socket) {
  pid_t pid = 0;
  if (!is_same_user(socket.number(), pid)) co_return;
  const HandoverChannel channel(std::move(socket));
  set_timeout(channel.number(), kAnswerPatience);
  talking_with_ = pid;
  // Watched by another descriptor of the same socket, which this loop closes before the channel is used without it.
  waiting_for_drain_.assign(Descriptor(::fcntl(channel.number(), F_DUPFD_CLOEXEC, 0)));
  if (!channel.wait(std::chrono::milliseconds(0)) && !co_await waiting_for_drain_.until_readable()) co_return;
  const HandoverMessage asked = channel.receive();
  // A process that has ended before it asked is told nothing, nor is the log.
  if (!asked.text.empty() && grant(channel, asked)) {
    while (!channel.wait(std::chrono::milliseconds(0)) && co_await waiting_for_drain_.until_readable()) {
    }
    if (channel.receive().text == kDrain && !parts_.stops()) {
      waiting_for_drain_.close();
      listener_.close(); // the new gateway takes the name
      for (const Listening& listening : parts_.listeners) granted_.listeners.add(listening.name, listening.duplicate());
      granted_.channel = HandoverChannel(Descriptor(::fcntl(channel.number(), F_DUPFD_CLOEXEC, 0)));
      drains_ = true;
      log_.always("handing_over", {{"to_pid", pid}});
      parts_.drain();
      co_return;
    }
    log_.info("handover_given_up", {{"to_pid", pid}});
  }
  waiting_for_drain_.close();
  talking_with_ = 0;
}

Task<void> HandoverOffer::refuse_second(HandoverChannel channel, pid_t first) {
  pid_t pid = 0;
  if (!is_same_user(channel.number(), pid)) co_return;
  set_timeout(channel.number(), kAnswerPatience);
  WatchedDescriptor watched(listener_.loop(), Descriptor(::fcntl(channel.number(), F_DUPFD_CLOEXEC, 0)));
  if (!channel.wait(std::chrono::milliseconds(0)) && !co_await watched.until_readable()) co_return;
  (void)channel.receive(); // a socket that is closed with a message unread loses the answer
  refuse(channel, fmt::format("process {} is taking over from the running gateway already: wait for it, or end it and "
                              "start again",
                              first));
}

void HandoverOffer::refuse(const HandoverChannel& channel, std::string_view reason) const {
  log_.warning("handover_refused", {{"reason", reason}});
  channel.send(fmt::format("{}{}", kRefusal, reason));
}

bool HandoverOffer::grant(const HandoverChannel& channel, const HandoverMessage& asked) {
  const auto refused = [&](std::string_view reason) {
    refuse(channel, reason);
    return false;
  };
  if (!asked.text.starts_with(kHello)) {
    return refused(
        "the running gateway speaks another version of the handover: stop it and start the new one, clients see "
        "refused connections meanwhile");
  }
  if (asked.text.substr(kHello.size()) != parts_.store) {
    return refused(
        "the running gateway uses another store: keys in it would be forgotten, and retries executed again. Use the "
        "same store, or stop that gateway first if this is meant");
  }
  if (parts_.stops()) return refused("the running gateway is stopping already: start again without it in a moment");
  for (const Listening& listening : parts_.listeners) {
    if (!channel.send(fmt::format("{}{}", kListener, listening.name), listening.duplicate().number())) return false;
  }
  return channel.send(fmt::format("{}{}", kGranted, ::getpid()));
}

int start_anew(const InheritedSockets& listeners, Log& log) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words{std::istreambuf_iterator<char>(file), {}};
  std::vector<char*> arguments;
  for (std::size_t at = 0; at < words.size(); at = words.find('\0', at) + 1) arguments.push_back(words.data() + at);
  arguments.push_back(nullptr);
  listeners.pass_on_to_exec();
  log.error("handover_failed",
            {{"reason", "the new gateway has ended before it served"},
             {"next", "this one starts anew on the same sockets; see why in the log of the new one"}});
  log.flush();
  // The program as it was started, also when its file was replaced since.
  ::execv("/proc/self/exe", arguments.data());
  log.error("cannot_start", {{"reason", std::strerror(errno)}});
  log.flush();
  return 1;
}

int end_handover(HandoverOffer::Granted granted, const std::vector<IdleConnection>& connections, Log& log) {
  const HandoverChannel& channel = granted.channel;
  // No limit: while the new gateway lives it may be opening a large store, and two cannot.
  if (!channel.send(std::string(kReleased)) || channel.receive().text != kReady)
    return start_anew(granted.listeners, log);
  for (const IdleConnection& connection : connections) {
    if (!channel.send(fmt::format("{}{}", kConnection, connection.listener), connection.socket.number())) {
      if (channel.other_is_gone()) return start_anew(granted.listeners, log);
      break;
    }
  }
  log.always("handed_over", {{"connections", connections.size()}});
  return 0;
}

Result<std::unique_ptr<TakeOver>> TakeOver::ask(const std::string& address, const std::string& store, Log& log) {
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const UnixAddress name = address_of(address);
  set_timeout(made.number(), kAnswerPatience);
  if (::connect(made.number(), name.get(), name.length) != 0) {
    if (errno == ECONNREFUSED) return std::unique_ptr<TakeOver>();
    return unavailable(fmt::format("the running gateway at {} does not answer ({}): end it, then start again", address,
                                   std::strerror(errno)));
  }
  pid_t pid = 0;
  if (!is_same_user(made.number(), pid)) {
    return invalid(fmt::format("process {}, which offers to hand {} over, belongs to another user", pid, address));
  }
  std::unique_ptr<TakeOver> taking(new TakeOver(HandoverChannel(std::move(made)), log));
  taking->pid_ = std::to_string(pid);
  const HandoverChannel& channel = taking->channel_;
  const auto hangs = [&] {
    return unavailable(fmt::format("the running gateway (process {}) does not answer: end it, then start again", pid));
  };
  // Where it cannot be sent there may be a refusal to read all the same.
  (void)channel.send(fmt::format("{}{}", kHello, store));
  for (;;) {
    if (!channel.wait(kAnswerPatience)) return hangs();
    HandoverMessage message = channel.receive();
    if (message.text.starts_with(kListener) && message.socket.open()) {
      taking->listeners_.add(message.text.substr(kListener.size()), std::move(message.socket));
    } else if (message.text.starts_with(kGranted)) {
      break;
    } else if (message.text.starts_with(kRefusal)) {
      return Fault{FaultKind::conflict, message.text.substr(kRefusal.size())};
    } else if (message.text.empty()) {
      break; // it is gone: what it has sent is as good
    }
  }
  log.info("taking_over", {{"from_pid", pid}});
  return taking;
}

Status TakeOver::release_store(std::chrono::milliseconds patience) {
  if (!channel_.send(std::string(kDrain))) return ok_status();
  if (!channel_.wait(patience)) {
    return unavailable(
        fmt::format("the running gateway (process {}) has not released the store within {} s; it starts anew when its "
                    "requests have ended",
                    pid_, patience.count() / 1000));
  }
  (void)channel_.receive(); // "released", or the end of the other process: the store's locks tell
  return ok_status();
}

void TakeOver::drain_other() { channel_.send(std::string(kDrain)); }

void TakeOver::ready(Loop& loop, Adopt adopt) {
  channel_.send(std::string(kReady));
  loop.post([this, &loop, adopt = std::move(adopt)] { spawn(receive_connections(loop, adopt)); });
}

Task<void> TakeOver::receive_connections(Loop& loop, Adopt adopt) {
  WatchedDescriptor watched(loop, Descriptor(::fcntl(channel_.number(), F_DUPFD_CLOEXEC, 0)));
  std::size_t adopted = 0;
  for (;;) {
    if (!channel_.wait(std::chrono::milliseconds(0)) && !co_await watched.until_readable()) break;
    if (!channel_.wait(std::chrono::milliseconds(0))) continue;
    HandoverMessage message = channel_.receive();
    if (message.text.empty()) break;
    if (!message.socket.open()) continue; // "released", of a store that both use
    if (!message.text.starts_with(kConnection)) continue;
    adopt({message.text.substr(kConnection.size()), std::move(message.socket)});
    ++adopted;
  }
  watched.close();
  channel_.close();
  log_.always("took_over", {{"from_pid", pid_}, {"connections", adopted}});
}

} // namespace oncekey
