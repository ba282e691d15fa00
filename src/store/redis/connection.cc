#include "store/redis/connection.h"

#include "store/redis/server_error.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/write.hpp>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <utility>

namespace oncekey::redis {
namespace {

bool is_address(const std::string& host) {
  error_code error;
  asio::ip::make_address(host, error);
  return !error;
}

} // namespace

Connection::Connection(asio::io_context& context, Host host, const ConnectionOptions& options)
    : context_(context), host_(std::move(host)), options_(options), socket_(context), overdue_(context) {}

Task<Status> Connection::open(Deadline deadline) {
  // Whatever step is under way when time is up ends with an error, since its socket is gone.
  Timer guard(context_, deadline);
  guard.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    if (!error && self) self->close("it did not answer in time");
  });
  Status status = co_await connect(deadline);
  if (status && options_.tls != nullptr) status = co_await start_tls();
  if (status && state_ == State::closed) status = unavailable(why_closed_);
  if (status) {
    state_ = State::open;
    read();
    status = co_await log_in(deadline);
  }
  guard.cancel();
  if (!status) {
    const std::string why = state_ == State::closed ? why_closed_ : status.fault().message;
    close(why);
    co_return Fault{status.fault().kind, fmt::format("cannot use Redis at {}: {}", to_string(host_), why)};
  }
  co_return ok_status();
}

Task<Status> Connection::connect(Deadline deadline) {
  using Endpoints = asio::ip::basic_resolver<asio::ip::tcp, Executor>::results_type;
  struct Resolving {
    explicit Resolving(asio::io_context& context) : resolver(context), arrival(context) {}
    asio::ip::basic_resolver<asio::ip::tcp, Executor> resolver;
    Arrival<std::pair<error_code, Endpoints>> arrival;
  };
  // Looking a name up cannot be interrupted, so we do not wait for it beyond the deadline; its answer finds nobody.
  const auto resolving = std::make_shared<Resolving>(context_);
  resolving->resolver.async_resolve(host_.name, std::to_string(host_.port),
                                    [resolving](error_code error, Endpoints found) {
                                      resolving->arrival.set({error, std::move(found)});
                                    });
  const auto resolved = co_await resolving->arrival.wait_until(deadline);
  if (!resolved) co_return unavailable("its name was not resolved in time");
  if (resolved->first) co_return unavailable("its name cannot be resolved: " + resolved->first.message());
  if (state_ == State::closed) co_return unavailable(why_closed_);
  const auto [error, endpoint] = co_await asio::async_connect(socket_, resolved->second, use_task);
  if (error) co_return unavailable(error.message());
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  co_return ok_status();
}

Task<Status> Connection::start_tls() {
  tls_ = std::make_unique<TlsStream>(socket_, *options_.tls);
  // SNI names hosts, never addresses (RFC 6066). The macro around this call casts in a way we do not compile.
  if (!is_address(host_.name)) {
    SSL_ctrl(tls_->native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
             const_cast<char*>(host_.name.c_str()));
  }
  tls_->set_verify_mode(asio::ssl::verify_peer);
  tls_->set_verify_callback(
      [matches = asio::ssl::host_name_verification(host_.name)](bool trusted, asio::ssl::verify_context& context) {
        const bool right = matches(trusted, context);
        // OpenSSL cannot know why we object, and would call it unspecified.
        if (trusted && !right) X509_STORE_CTX_set_error(context.native_handle(), X509_V_ERR_HOSTNAME_MISMATCH);
        return right;
      });
  const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::client, use_task);
  if (!error) co_return ok_status();
  const long verified = SSL_get_verify_result(tls_->native_handle());
  if (verified == X509_V_ERR_HOSTNAME_MISMATCH) {
    co_return invalid(
        fmt::format("its certificate is for another name than {}: write the name in the URL that the "
                    "certificate has, or give the server one with this name",
                    host_.name));
  }
  if (verified != X509_V_OK) {
    co_return invalid(fmt::format("its certificate is not trusted: {} (tls_ca=PATH in the URL names who signs it)",
                                  X509_verify_cert_error_string(verified)));
  }
  co_return unavailable("TLS failed: " + error.message());
}

Task<Status> Connection::log_in(Deadline deadline) {
  if (!options_.password.empty() || !options_.user.empty()) {
    std::string auth = options_.user.empty() ? command({"AUTH", options_.password})
                                             : command({"AUTH", options_.user, options_.password});
    const Result<OwnedReply> reply = co_await ask(std::move(auth), deadline);
    if (!reply) co_return reply.fault();
    // Servers say in many ways that a login is wrong; while they load their data they say that instead.
    if (reply->look().is_error()) {
      const ServerError error = parse_error(reply->look().text());
      if (error.kind == ErrorKind::again) co_return unavailable(error.text);
      co_return invalid(fmt::format("it refuses the login: {}", error.text));
    }
  }
  std::string select = command({"SELECT", std::to_string(options_.database)});
  if (options_.database == 0) select = command({"PING"});
  const Result<OwnedReply> reply = co_await ask(std::move(select), deadline);
  if (!reply) co_return reply.fault();
  if (reply->look().is_error()) {
    const ServerError error = parse_error(reply->look().text());
    const Fault fault = fault_of(error, host_);
    co_return Fault{error.kind == ErrorKind::again ? FaultKind::unavailable : FaultKind::invalid, fault.message};
  }
  co_return ok_status();
}

Task<Result<OwnedReply>> Connection::ask(std::string command, Deadline deadline) {
  const auto arrival = std::make_shared<Arrival<Result<OwnedReply>>>(context_);
  send(command, deadline, [arrival](Result<OwnedReply> reply) { arrival->set(std::move(reply)); });
  // Every command is answered: when the connection says so, and not a moment before.
  std::optional<Result<OwnedReply>> reply = co_await arrival->wait_until(Deadline::max());
  ONCEKEY_CHECK(reply.has_value(), "a command went without an answer");
  co_return *std::move(reply);
}

void Connection::send(std::string_view command, Deadline deadline, Answered answered, Covered covered) {
  if (state_ != State::open) {
    return answered(unavailable(fmt::format("no connection to Redis at {}: {}", to_string(host_), why_closed_)));
  }
  const bool holds = covered == Covered::yes && options_.replicas > 0;
  enqueue(command, deadline, std::move(answered), holds ? Kind::covered : Kind::plain);
  if (holds) {
    wait_is_due_ = true;
    wait_deadline_ = deadline;
  }
  if (flush_is_due_) return;
  // What others send in the same turn of the loop goes out with it.
  flush_is_due_ = true;
  asio::post(context_, [self = shared_from_this()] { self->flush(); });
}

void Connection::enqueue(std::string_view command, Deadline deadline, Answered answered, Kind kind) {
  pending_.push_back({std::move(answered), deadline, enqueued_bytes_, kind});
  outgoing_.append(command);
  enqueued_bytes_ += command.size();
  watch(deadline);
}

void Connection::flush() {
  flush_is_due_ = false;
  if (writing_ || outgoing_.empty() || state_ != State::open) return;
  if (wait_is_due_) {
    wait_is_due_ = false;
    enqueue(command({"WAIT", std::to_string(options_.replicas), std::to_string(options_.replicas_timeout.count())}),
            wait_deadline_, nullptr, Kind::wait);
  }
  writing_ = true;
  being_written_.clear();
  std::swap(being_written_, outgoing_);
  handed_bytes_ += being_written_.size();
  std::size_t done = 0;
  if (!tls_) {
    // A batch nearly always fits into the socket's buffer: no reason to go through the event loop for it.
    error_code error;
    done = socket_.write_some(asio::buffer(being_written_), error);
    if (error && error != asio::error::would_block) return written(error);
    if (done == being_written_.size()) return written({});
  }
  const auto rest = asio::buffer(being_written_) + done;
  const auto told = [self = shared_from_this()](error_code error, std::size_t) { self->written(error); };
  if (tls_) {
    asio::async_write(*tls_, rest, told);
  } else {
    asio::async_write(socket_, rest, told);
  }
}

void Connection::written(error_code error) {
  writing_ = false;
  if (state_ == State::closed) return;
  if (error) return close(lost_because(error));
  flush();
}

void Connection::read() {
  const auto told = [self = shared_from_this()](error_code error, std::size_t bytes) { self->received(error, bytes); };
  if (tls_) {
    tls_->async_read_some(asio::buffer(received_), told);
  } else {
    socket_.async_read_some(asio::buffer(received_), told);
  }
}

void Connection::received(error_code error, std::size_t bytes) {
  if (state_ == State::closed) return;
  if (error) return close(lost_because(error));
  replies_.feed({received_.data(), bytes});
  while (state_ == State::open) {
    Result<std::optional<OwnedReply>> reply = replies_.next();
    if (!reply) return close(reply.fault().message);
    if (!reply->has_value()) break;
    take(**std::move(reply));
  }
  if (state_ == State::open) read();
}

void Connection::take(OwnedReply reply) {
  if (message_ && reply.look()[0].text() == "message") return message_(reply.look());
  if (pending_.empty()) return close("the server sent an answer to nothing");
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

void Connection::answer_held(const OwnedReply& confirmed) {
  const std::int64_t replicas = confirmed.look().is_integer() ? *confirmed.look().integer() : -1;
  std::vector<Held> held;
  std::swap(held, held_);
  for (Held& each : held) {
    if (replicas >= options_.replicas) {
      each.answered(std::move(each.reply));
    } else {
      each.answered(Fault{FaultKind::timeout,
                          fmt::format("{} of the {} replicas that the store's URL waits for have confirmed to Redis at "
                                      "{} in time: what was written may be lost in a failover",
                                      std::max<std::int64_t>(replicas, 0), options_.replicas, to_string(host_))});
    }
  }
}

void Connection::watch(Deadline deadline) {
  if (deadline >= watched_) return;
  watched_ = deadline;
  overdue_.expires_at(deadline);
  overdue_.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    if (!error && self) self->look_for_overdue();
  });
}

void Connection::look_for_overdue() {
  watched_ = Deadline::max();
  if (state_ == State::closed || pending_.empty()) return;
  Deadline earliest = Deadline::max();
  for (const Pending& each : pending_) earliest = std::min(earliest, each.deadline);
  if (earliest <= Clock::now()) return close("it did not answer in time");
  watch(earliest);
}

void Connection::close(const std::string& why) {
  if (state_ == State::closed) return;
  const bool was_open = state_ == State::open;
  state_ = State::closed;
  why_closed_ = why;
  error_code ignored;
  socket_.close(ignored);
  overdue_.cancel();
  std::deque<Pending> pending;
  std::swap(pending, pending_);
  std::vector<Held> held;
  std::swap(held, held_);
  const std::string where = to_string(host_);
  for (Held& each : held) {
    each.answered(Fault{FaultKind::timeout, fmt::format("the connection to Redis at {} was lost: {}", where, why)});
  }
  for (Pending& each : pending) {
    if (!each.answered) continue;
    if (each.begins_at < handed_bytes_) {
      each.answered(Fault{FaultKind::timeout, fmt::format("no answer from Redis at {}: {}", where, why)});
    } else {
      each.answered(unavailable(fmt::format("nothing was sent to Redis at {}: {}", where, why)));
    }
  }
  if (was_open && closed_) std::exchange(closed_, nullptr)();
}

std::string Connection::lost_because(error_code error) const {
  return error == asio::error::eof ? "it closed the connection" : error.message();
}

} // namespace oncekey::redis
