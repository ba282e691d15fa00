#include "redis/connection.h"

#include "net/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace oncekey::redis {
namespace {

Result<std::string> read_password(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return invalid(fmt::format("the password file {} cannot be read", path));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (text.empty()) return invalid(fmt::format("the password file {} is empty", path));
  return text;
}

// A slot that moves is elsewhere once or twice; more redirections go round in circles.
constexpr int kRedirectionsMax = 5;

std::optional<Host> redirection(const Result<OwnedReply>& answer, const Host& from) {
  if (!answer || !answer->look().is_error()) return std::nullopt;
  ServerError error = parse_error(answer->look().text());
  if (error.kind != ErrorKind::moved) return std::nullopt;
  if (error.host.name.empty()) error.host.name = from.name;
  return error.host;
}

} // namespace

Result<ConnectionOptions> connection_options(RedisUrl url, Millis call_timeout) {
  ConnectionOptions options{std::move(url), call_timeout, {}};
  RedisUrl& from = options.url;
  options.call_timeout = from.call_timeout.value_or(call_timeout);
  if (!from.password_file.empty()) {
    Result<std::string> password = read_password(from.password_file);
    if (!password) return std::move(password).fault();
    from.password = *std::move(password);
  }
  if (from.tls) {
    Result<TlsContext> tls = client_tls({.ca_file = from.tls_ca, .cert_file = from.tls_cert, .key_file = from.tls_key});
    if (!tls) return std::move(tls).fault();
    options.tls = *std::move(tls);
  }
  return options;
}

RedisConnection::RedisConnection(Loop& loop, Host host, const ConnectionOptions& options)
    : loop_(loop), host_(std::move(host)), options_(options), overdue_(loop, [this] { close_if_overdue(); }) {}

Task<Status> RedisConnection::open(MonotonicTime deadline) {
  const auto self = shared_from_this();
  Connected connected = co_await connect(loop_, host_.name, host_.port, options_.tls, deadline);
  Status status = ok_status();
  if (connected.failure == ConnectFailure::distrusted) {
    status = invalid(connected.reason + " (tls_ca=PATH in the URL names the authority that signs it)");
  } else if (connected.failure != ConnectFailure::none) {
    status = unavailable(connected.reason);
  } else if (state_ == State::closed) {
    status = unavailable(why_closed_);
  } else {
    transport_ = std::move(connected.transport);
    transport_->no_deadline(); // each command has its own
    state_ = State::open;
    spawn(read_replies());
    status = co_await log_in(deadline);
  }
  if (!status) {
    const std::string why = state_ == State::closed ? why_closed_ : status.fault().message;
    close(why);
    co_return Fault{status.fault().kind, fmt::format("cannot use Redis at {}: {}", to_string(host_), why)};
  }
  co_return ok_status();
}

Task<Status> RedisConnection::log_in(MonotonicTime deadline) {
  const RedisUrl& url = options_.url;
  std::vector<std::pair<std::string, std::string_view>> steps; // and what is said when they are refused
  if (!url.user.empty()) {
    steps.emplace_back(command({"AUTH", url.user, url.password}), "it refuses the login");
  } else if (!url.password.empty()) {
    steps.emplace_back(command({"AUTH", url.password}), "it refuses the login");
  }
  if (url.database != 0)
    steps.emplace_back(command({"SELECT", std::to_string(url.database)}), "it refuses the database");
  for (const auto& [step, refused] : steps) {
    const Result<OwnedReply> reply = co_await ask(step, deadline);
    if (!reply) co_return reply.fault();
    if (!reply->look().is_error()) continue;
    // Servers say in many ways that a login is wrong; while they load their data they say that instead.
    const ServerError error = parse_error(reply->look().text());
    if (error.kind == ErrorKind::again) co_return unavailable(error.text);
    co_return invalid(fmt::format("{}: {}", refused, error.text));
  }
  co_return ok_status();
}

Task<std::vector<Result<OwnedReply>>> RedisConnection::ask_all(std::vector<std::string> commands,
                                                               MonotonicTime deadline) {
  struct Asked {
    explicit Asked(Loop& loop) : all_answered(loop) {}
    Notice all_answered;
    std::vector<Result<OwnedReply>> replies;
  };
  const auto asked = std::make_shared<Asked>(loop_);
  for (const std::string& command : commands) {
    send(command, deadline, [asked, count = commands.size()](Result<OwnedReply> reply) {
      asked->replies.push_back(std::move(reply));
      if (asked->replies.size() == count) asked->all_answered.give();
    });
  }
  // No deadline here: the connection answers every command, at its deadline at the latest.
  if (!commands.empty()) co_await asked->all_answered.wait();
  ONCEKEY_CHECK(asked->replies.size() == commands.size(), "a command went without an answer");
  co_return std::move(asked->replies);
}

Task<Result<OwnedReply>> RedisConnection::ask(std::string command, MonotonicTime deadline) {
  std::vector<std::string> one{std::move(command)};
  std::vector<Result<OwnedReply>> replies = co_await ask_all(std::move(one), deadline);
  co_return std::move(replies.front());
}

Task<Result<OwnedReply>> RedisConnection::refuse_error(Task<Result<OwnedReply>> asked, Host from) {
  Result<OwnedReply> reply = co_await std::move(asked);
  co_return without_error(std::move(reply), from);
}

void RedisConnection::send(std::string_view command, MonotonicTime deadline, Answered answered, Covered covered) {
  if (state_ != State::open) {
    return answered(unavailable(fmt::format("no connection to Redis at {}: {}", to_string(host_), why_closed_)));
  }
  const bool holds = covered == Covered::yes && options_.url.wait > 0;
  enqueue(command, deadline, std::move(answered), holds ? Kind::covered : Kind::plain);
  if (holds) {
    wait_is_due_ = true;
    wait_deadline_ = deadline;
  }
  if (!std::exchange(writing_, true)) spawn(write_outgoing());
}

void RedisConnection::enqueue(std::string_view command, MonotonicTime deadline, Answered answered, Kind kind) {
  pending_.push_back({std::move(answered), deadline, enqueued_bytes_, kind});
  outgoing_.append(command);
  enqueued_bytes_ += command.size();
  watch(deadline);
}

Task<void> RedisConnection::write_outgoing() {
  const auto self = shared_from_this();
  // What other callers send in the same turn of the loop goes out with it.
  co_await loop_.next_turn();
  while (state_ == State::open && !outgoing_.empty()) {
    if (std::exchange(wait_is_due_, false)) {
      // Half the time, so that its answer is still in time.
      const auto patience = std::to_string((options_.call_timeout / 2).count());
      enqueue(command({"WAIT", std::to_string(options_.url.wait), patience}), wait_deadline_, nullptr, Kind::wait);
    }
    being_written_.clear();
    std::swap(being_written_, outgoing_);
    handed_bytes_ += being_written_.size();
    const IoResult written = co_await transport_->write(being_written_);
    if (written.error) lost(written.error);
  }
  writing_ = false;
}

Task<void> RedisConnection::read_replies() {
  const auto self = shared_from_this();
  while (state_ == State::open) {
    const IoResult got = co_await transport_->read_some(received_);
    if (state_ != State::open) break;
    if (got.error) {
      lost(got.error);
      break;
    }
    replies_.feed({received_.data(), got.bytes});
    while (state_ == State::open) {
      Result<std::optional<OwnedReply>> reply = replies_.next();
      if (!reply) close(reply.fault().message);
      if (!reply || !reply->has_value()) break;
      take(**std::move(reply));
    }
  }
}

void RedisConnection::take(OwnedReply reply) {
  if (message_ && reply.look()[0].text() == "message") return message_(reply.look());
  if (pending_.empty()) {
    // A server with too many clients says so to a new one before it is asked anything.
    return close(reply.look().is_error() ? std::string(reply.look().text())
                                         : "the server sent an answer without a question");
  }
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  switch (first.kind) {
    case Kind::plain:
      return first.answered(std::move(reply));
    case Kind::covered:
      held_.push_back({std::move(first.answered), std::move(reply)});
      return;
    case Kind::wait:
      return answer_held(reply);
  }
}

void RedisConnection::answer_held(const OwnedReply& confirmed) {
  const std::int64_t replicas = confirmed.look().is_integer() ? *confirmed.look().integer() : -1;
  for (Held& each : std::exchange(held_, {})) {
    if (replicas >= options_.url.wait) {
      each.answered(std::move(each.reply));
    } else {
      each.answered(Fault{FaultKind::timeout,
                          fmt::format("{} of the {} replicas that the store's URL waits for have confirmed to Redis at "
                                      "{} in time: what was written may be lost in a failover",
                                      std::max<std::int64_t>(replicas, 0), options_.url.wait, to_string(host_))});
    }
  }
}

void RedisConnection::watch(MonotonicTime deadline) {
  if (deadline >= watched_) return;
  watched_ = deadline;
  overdue_.at(deadline);
}

void RedisConnection::close_if_overdue() {
  const auto self = shared_from_this(); // the callbacks of close() may drop the last pointer
  watched_ = MonotonicTime::max();
  if (state_ == State::closed || pending_.empty()) return;
  MonotonicTime earliest = MonotonicTime::max();
  for (const Pending& each : pending_) earliest = std::min(earliest, each.deadline);
  if (earliest <= Clock::now()) return close("it did not answer in time");
  watch(earliest);
}

void RedisConnection::lost(std::error_code error) {
  close(is_end(error) ? "it closed the connection" : error.message());
}

void RedisConnection::close(const std::string& why) {
  if (state_ == State::closed) return;
  const bool was_open = state_ == State::open;
  state_ = State::closed;
  why_closed_ = why;
  if (transport_) transport_->close();
  overdue_.clear();
  const std::deque<Pending> pending = std::exchange(pending_, {});
  const std::vector<Held> held = std::exchange(held_, {});
  const std::string where = to_string(host_);
  for (const Held& each : held) {
    each.answered(Fault{FaultKind::timeout, fmt::format("the connection to Redis at {} was lost: {}", where, why)});
  }
  for (const Pending& each : pending) {
    if (!each.answered) continue;
    if (each.begins_at < handed_bytes_) {
      each.answered(Fault{FaultKind::timeout, fmt::format("no answer from Redis at {}: {}", where, why)});
    } else {
      each.answered(unavailable(fmt::format("nothing was sent to Redis at {}: {}", where, why)));
    }
  }
  if (was_open && closed_) std::exchange(closed_, nullptr)();
}

Result<std::unique_ptr<BlockingClient>> BlockingClient::make(RedisUrl url, Millis timeout) try {
  Result<ConnectionOptions> options = connection_options(std::move(url), timeout);
  if (!options) return std::move(options).fault();
  return std::unique_ptr<BlockingClient>(new BlockingClient(*std::move(options)));
} catch (const std::system_error& error) {
  return unavailable(error.what());
}

void BlockingClient::disconnect() {
  if (connection_) connection_->close("it is no longer used");
}

std::vector<Result<OwnedReply>> BlockingClient::exchange(std::span<const std::string> commands,
                                                         MonotonicTime deadline) {
  Status connected = ok_status();
  if (!connection_ || !connection_->is_open()) {
    const Host host = moved_to_ ? *moved_to_ : options_.url.hosts[turn_++ % options_.url.hosts.size()];
    connection_ = std::make_shared<RedisConnection>(loop_, host, options_);
    connected = loop_.run_to_end(connection_->open(deadline));
  }
  if (connected) return loop_.run_to_end(connection_->ask_all({commands.begin(), commands.end()}, deadline));
  moved_to_.reset();
  std::vector<Result<OwnedReply>> refused;
  while (refused.size() < commands.size()) refused.emplace_back(connected.fault());
  return refused;
}

std::vector<Result<OwnedReply>> BlockingClient::run(std::span<const std::string> commands) {
  const MonotonicTime deadline = Clock::now() + options_.call_timeout;
  std::vector<Result<OwnedReply>> answers = exchange(commands, deadline);
  for (int tries = 0; options_.url.cluster && tries < kRedirectionsMax; ++tries) {
    std::size_t first = 0;
    std::optional<Host> to;
    while (first < answers.size() && !(to = redirection(answers[first], connection_->host()))) ++first;
    if (!to) break;
    moved_to_ = to;
    disconnect();
    // All are of one slot: the commands behind the first redirected one were redirected as well.
    std::vector<Result<OwnedReply>> rest = exchange(commands.subspan(first), deadline);
    std::move(rest.begin(), rest.end(), answers.begin() + static_cast<std::ptrdiff_t>(first));
  }
  return answers;
}

} // namespace oncekey::redis
