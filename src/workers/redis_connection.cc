#include "workers/redis_connection.h"

#include "workers/without_sigpipe.h"

#include <fmt/format.h>

#include <sys/time.h>
#include <algorithm>
#include <charconv>

namespace oncekey {
namespace {

struct ReplyFree {
  void operator()(void* reply) const { freeReplyObject(reply); }
};

bool parse_number(std::string_view text, int& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() && out >= 0;
}

timeval timeval_of(Millis time) {
  return {.tv_sec = time.count() / 1000, .tv_usec = static_cast<suseconds_t>(time.count() % 1000 * 1000)};
}

// Errors about one command rather than about the server, its memory, its disk, its role or our right to use it. The
// server's own are many, and new ones come; these are few.
bool is_about_the_command(std::string_view error) {
  constexpr std::string_view kAboutOne[] = {"WRONGTYPE ",          "ERR wrong number of arguments",
                                            "ERR syntax error",    "ERR string exceeds maximum allowed size",
                                            "ERR value is",        "ERR Protocol error",
                                            "ERR invalid",         "ERR Invalid",
                                            "ERR The ID specified"};
  return std::any_of(std::begin(kAboutOne), std::end(kAboutOne),
                     [&](std::string_view start) { return error.starts_with(start); });
}

} // namespace

bool is_servers_trouble(std::string_view error) { return !error.empty() && !is_about_the_command(error); }

Result<RedisAddress> parse_redis_address(std::string_view url) {
  constexpr std::string_view kScheme = "redis://";
  if (!url.starts_with(kScheme)) return invalid("a Redis URL begins with redis://");
  std::string_view rest = url.substr(kScheme.size());
  RedisAddress address;
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view credentials = rest.substr(0, at);
    rest = rest.substr(at + 1);
    const std::size_t colon = credentials.find(':');
    if (colon == std::string_view::npos) return invalid("credentials in a Redis URL are user:password or :password");
    address.user = credentials.substr(0, colon);
    address.password = credentials.substr(colon + 1);
  }
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (!database.empty() && !parse_number(database, address.database)) {
      return invalid("the database of a Redis URL is a number");
    }
  }
  if (const std::size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    if (!parse_number(rest.substr(colon + 1), address.port)) return invalid("the port of a Redis URL is a number");
    rest = rest.substr(0, colon);
  }
  if (!rest.empty()) address.host = rest;
  return address;
}

Fault RedisConnection::broken(std::string_view doing) {
  const std::string why = context_ && context_->errstr[0] != '\0' ? context_->errstr : "no answer";
  context_.reset();
  return unavailable(fmt::format("Redis at {}:{}: {} while {}", address_.host, address_.port, why, doing));
}

Status RedisConnection::connect() {
  if (context_ && context_->err == 0) return ok_status();
  context_.reset(redisConnectWithTimeout(address_.host.c_str(), address_.port, timeval_of(timeout_)));
  if (!context_ || context_->err != 0 || redisSetTimeout(context_.get(), timeval_of(timeout_)) != REDIS_OK) {
    return broken("connecting");
  }
  std::vector<RedisArguments> greeting;
  if (!address_.password.empty()) {
    greeting.push_back(address_.user.empty() ? RedisArguments{"AUTH", address_.password}
                                             : RedisArguments{"AUTH", address_.user, address_.password});
  }
  if (address_.database != 0) greeting.push_back({"SELECT", fmt::format("{}", address_.database)});
  for (const RedisArguments& command : greeting) {
    if (auto sent = append(command); !sent.ok()) return sent;
    auto error = error_of_next();
    if (!error.ok()) return std::move(error).fault();
    if (!error->empty()) {
      context_.reset();
      return unavailable(fmt::format("Redis at {}:{}: {}", address_.host, address_.port, *error));
    }
  }
  return ok_status();
}

Status RedisConnection::append(const RedisArguments& command) {
  std::vector<const char*> pointers;
  std::vector<std::size_t> lengths;
  for (const std::string& argument : command) {
    pointers.push_back(argument.data());
    lengths.push_back(argument.size());
  }
  const int count = static_cast<int>(command.size());
  if (redisAppendCommandArgv(context_.get(), count, pointers.data(), lengths.data()) != REDIS_OK) {
    return broken("sending");
  }
  return ok_status();
}

Result<std::string> RedisConnection::error_of_next() {
  void* raw = nullptr;
  if (redisGetReply(context_.get(), &raw) != REDIS_OK) return broken("waiting for an answer");
  const std::unique_ptr<void, ReplyFree> owner(raw);
  const auto* const reply = static_cast<const redisReply*>(raw);
  if (reply->type == REDIS_REPLY_ERROR) return std::string(reply->str, reply->len);
  return std::string();
}

Result<std::vector<std::string>> RedisConnection::run(const std::vector<RedisArguments>& commands) {
  const WithoutSigpipe quiet;
  if (auto connected = connect(); !connected.ok()) return std::move(connected).fault();
  for (const RedisArguments& command : commands) {
    if (auto sent = append(command); !sent.ok()) return std::move(sent).fault();
  }
  std::vector<std::string> errors;
  errors.reserve(commands.size());
  std::string trouble;
  while (errors.size() < commands.size()) {
    auto error = error_of_next();
    if (!error.ok()) {
      if (trouble.empty()) return std::move(error).fault();
      // "max number of clients" is said once, and then the server closes.
      errors.resize(commands.size(), trouble);
      break;
    }
    if (is_servers_trouble(*error)) trouble = *error;
    errors.push_back(std::move(error).value());
  }
  if (!trouble.empty()) context_.reset();
  return errors;
}

} // namespace oncekey
