#include "store/redis/session.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include <fmt/format.h>

#include <fstream>
#include <future>
#include <iterator>
#include <utility>

namespace oncekey::redis {
namespace {

// How long a server that is not there yet is waited for at start.
constexpr std::chrono::seconds kPatienceAtStart{5};
constexpr Millis kPauseAtStart{50};

Result<std::string> read_password(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return invalid(fmt::format("the password file {} cannot be read", path));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (text.empty()) return invalid(fmt::format("the password file {} is empty", path));
  return text;
}

Result<std::unique_ptr<asio::ssl::context>> make_tls(const Url& url) {
  if (!url.tls) return std::unique_ptr<asio::ssl::context>();
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  error_code error;
  if (url.tls_ca.empty()) {
    context->set_default_verify_paths(error);
  } else {
    context->load_verify_file(url.tls_ca, error);
  }
  if (error) return invalid(fmt::format("tls_ca {} cannot be used: {}", url.tls_ca, error.message()));
  if (!url.tls_cert.empty()) {
    context->use_certificate_chain_file(url.tls_cert, error);
    if (error) return invalid(fmt::format("tls_cert {} cannot be used: {}", url.tls_cert, error.message()));
    context->use_private_key_file(url.tls_key, asio::ssl::context::pem, error);
    if (error) return invalid(fmt::format("tls_key {} cannot be used: {}", url.tls_key, error.message()));
  }
  return context;
}

Task<void> fulfil(Task<Status> task, std::promise<Status>& promise) {
  Status status = co_await std::move(task);
  promise.set_value(std::move(status));
}

ConnectionOptions connection_options(const Url& url, asio::ssl::context* tls, Millis call_timeout) {
  ConnectionOptions options;
  options.user = url.user;
  options.password = url.password;
  options.database = url.database;
  options.tls = tls;
  options.replicas = url.wait;
  options.replicas_timeout = call_timeout / 2; // its answer must still be in time
  return options;
}

} // namespace

Result<std::unique_ptr<Session>> Session::make(const RedisOptions& options) {
  Result<Url> url = parse_url(options.url);
  if (!url) return std::move(url).fault();
  if (!url->password_file.empty()) {
    Result<std::string> password = read_password(url->password_file);
    if (!password) return std::move(password).fault();
    url->password = *std::move(password);
  }
  Result<std::unique_ptr<asio::ssl::context>> tls = make_tls(*url);
  if (!tls) return std::move(tls).fault();
  return std::unique_ptr<Session>(new Session(options, *std::move(url), *std::move(tls)));
}

Session::Session(const RedisOptions& options, Url url, std::unique_ptr<asio::ssl::context> tls)
    : log_(options.log),
      url_(std::move(url)),
      call_timeout_(url_.call_timeout.value_or(options.call_timeout)),
      clock_(options.clock),
      names_(url_.prefix, url_.cluster ? kClusterPartitions : 1),
      tls_(std::move(tls)),
      connection_options_(connection_options(url_, tls_.get(), call_timeout_)),
      servers_(context_, url_, connection_options_, call_timeout_, names_, *this),
      meta_(context_, servers_, names_, call_timeout_),
      dispatcher_(context_, servers_, state_, names_, {call_timeout_, url_.wait > 0, clock_},
                  [this] { upkeep_.look_again(); }),
      upkeep_(context_, log_, url_, servers_, dispatcher_, meta_, state_, names_, call_timeout_),
      announcements_(context_, servers_, connection_options_, url_, names_, call_timeout_),
      thread_([this] { context_.run(); }) {}

Session::~Session() {
  // Everything that waits is answered; what is in the middle of something is dropped with the loop.
  asio::post(context_, [this] {
    upkeep_.stop();
    announcements_.stop();
    dispatcher_.stop();
    servers_.stop();
    // One turn later, so that whoever waited for an answer has had it.
    asio::post(context_, [this] { context_.stop(); });
  });
  thread_.join();
}

Status Session::block_on(Task<Status> task) {
  std::promise<Status> promise;
  std::future<Status> status = promise.get_future();
  asio::co_spawn(context_, fulfil(std::move(task), promise), asio::detached);
  return status.get();
}

Status Session::open_store() { return block_on(open_on_loop()); }
Status Session::accept_loss() { return block_on(accept_on_loop()); }

Status Session::reach() { return block_on(reach_on_loop()); }
Status Session::read_identity(std::string& text) { return block_on(read_identity_on_loop(text)); }
Status Session::write_identity(const std::string& expected, const std::string& next, bool& written) {
  return block_on(write_identity_on_loop(expected, next, written));
}

Task<Status> Session::reach_on_loop() {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = state_.may_claim();
  co_return status;
}

Task<Status> Session::read_identity_on_loop(std::string& text) {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = co_await meta_.read_identity(text);
  co_return status;
}

Task<Status> Session::write_identity_on_loop(std::string expected, std::string next, bool& written) {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = co_await meta_.write_identity(std::move(expected), std::move(next), written);
  co_return status;
}

Task<Status> Session::open_on_loop() {
  const Deadline deadline = Clock::now() + kPatienceAtStart;
  servers_.start();
  Status status = co_await servers_.until_ready(deadline);
  if (!status) co_return status;
  // An evicting server is no store to begin with; when it becomes one later, claims are refused until it is mended.
  Status usable = state_.may_claim();
  if (!usable) co_return invalid(usable.fault().message);
  status = co_await upkeep_.adopt_store();
  while (!status && status.fault().kind == FaultKind::unavailable && Clock::now() < deadline) {
    co_await sleep_for(context_, kPauseAtStart); // a slot or a primary has just moved
    status = co_await upkeep_.adopt_store();
  }
  if (!status) co_return status;
  asio::co_spawn(context_, upkeep_.run(), asio::detached);
  asio::co_spawn(context_, announcements_.run(), asio::detached);
  co_await announcements_.until_first_attempt(deadline);
  co_return status;
}

Task<Status> Session::accept_on_loop() {
  servers_.start();
  Status status = co_await servers_.until_ready(Clock::now() + kPatienceAtStart);
  if (status) status = co_await meta_.accept_loss();
  co_return status;
}

Task<Status> Session::prepare(const std::shared_ptr<Connection>& connection) { return upkeep_.prepare(connection); }

void Session::link_ready(const Host& host) {
  log_.info("store_connected", {{"server", to_string(host)}});
  state_.reachable(servers_.any_ready());
}

void Session::link_lost(const Host& host, const std::string& why) {
  log_.warning("store_connection_lost", {{"server", to_string(host)}, {"reason", why}});
  state_.reachable(servers_.any_ready());
  servers_.refresh_soon();
}

} // namespace oncekey::redis
