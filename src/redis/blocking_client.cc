#include "redis/blocking_client.h"

#include "redis/server_error.h"

#include <utility>

namespace oncekey::redis {
namespace {

// A slot that moves is elsewhere once or twice; more redirections go round in circles.
constexpr int kRedirectionsMax = 5;

Task<void> open_into(std::shared_ptr<RedisConnection> connection, MonotonicTime deadline,
                     std::optional<Status>& opened) {
  Status status = co_await connection->open(deadline);
  opened.emplace(std::move(status));
}

std::optional<Host> redirection(const Result<OwnedReply>& answer, const Host& from) {
  if (!answer || !answer->look().is_error()) return std::nullopt;
  ServerError error = parse_error(answer->look().text());
  if (error.kind != ErrorKind::moved) return std::nullopt;
  if (error.host.name.empty()) error.host.name = from.name;
  return error.host;
}

} // namespace

Result<std::unique_ptr<BlockingClient>> BlockingClient::make(RedisUrl url, Millis timeout) try {
  Result<ConnectionOptions> options = connection_options(url);
  if (!options) return std::move(options).fault();
  const Millis patience = url.call_timeout.value_or(timeout);
  return std::unique_ptr<BlockingClient>(new BlockingClient(std::move(url), *std::move(options), patience));
} catch (const std::system_error& error) {
  return unavailable(error.what());
}

BlockingClient::BlockingClient(RedisUrl url, ConnectionOptions options, Millis timeout)
    : url_(std::move(url)), options_(std::move(options)), timeout_(timeout) {}

void BlockingClient::disconnect() {
  if (connection_) connection_->close("it is no longer used");
}

Status BlockingClient::connect(MonotonicTime deadline) {
  if (connection_ && connection_->is_open()) return ok_status();
  const Host host = moved_to_ ? *moved_to_ : url_.hosts[turn_++ % url_.hosts.size()];
  connection_ = std::make_shared<RedisConnection>(loop_, host, options_);
  std::optional<Status> opened;
  spawn(open_into(connection_, deadline, opened));
  loop_.run_until([&] { return opened.has_value(); });
  if (!*opened) moved_to_.reset();
  return *std::move(opened);
}

std::vector<Result<OwnedReply>> BlockingClient::exchange(std::span<const std::string> commands,
                                                         MonotonicTime deadline) {
  std::vector<Result<OwnedReply>> answers;
  const Status connected = connect(deadline);
  for (const std::string& command : commands) {
    if (!connected) {
      answers.emplace_back(connected.fault());
      continue;
    }
    connection_->send(command, deadline, [&](Result<OwnedReply> answer) { answers.push_back(std::move(answer)); });
  }
  loop_.run_until([&] { return answers.size() == commands.size(); });
  return answers;
}

std::vector<Result<OwnedReply>> BlockingClient::run(std::span<const std::string> commands) {
  const MonotonicTime deadline = Clock::now() + timeout_;
  std::vector<Result<OwnedReply>> answers = exchange(commands, deadline);
  for (int tries = 0; url_.cluster && tries < kRedirectionsMax; ++tries) {
    std::size_t first = 0;
    while (first < answers.size() && !redirection(answers[first], connection_->host())) ++first;
    if (first == answers.size()) break;
    moved_to_ = redirection(answers[first], connection_->host());
    disconnect();
    // All are of one slot: the commands behind the first redirected one were redirected as well.
    std::vector<Result<OwnedReply>> rest = exchange(commands.subspan(first), deadline);
    std::move(rest.begin(), rest.end(), answers.begin() + static_cast<std::ptrdiff_t>(first));
  }
  return answers;
}

} // namespace oncekey::redis
