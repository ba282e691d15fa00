// RedisConnection: a blocking connection that is made when needed and made anew after any doubt.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <hiredis/hiredis.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct RedisAddress {
  std::string host = "127.0.0.1";
  int port = 6379;
  std::string user;
  std::string password;
  int database = 0;
};
// redis://[user:password@]host[:port][/database]
Result<RedisAddress> parse_redis_address(std::string_view url);

// Whether an error answer is about the server as a whole: too many clients, loading, out of memory, read-only, no
// permission, cluster down. Whatever was asked of it would have been answered so.
bool is_servers_trouble(std::string_view error);

using RedisArguments = std::vector<std::string>;

class RedisConnection {
 public:
  RedisConnection(RedisAddress address, Millis timeout) : address_(std::move(address)), timeout_(timeout) {}

  // Sends all commands, then reads all answers. An error answer to one of them is its text; nothing for one that was
  // accepted. A fault means that it is not known which were executed.
  Result<std::vector<std::string>> run(const std::vector<RedisArguments>& commands);

 private:
  struct Free {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  Status connect();
  Status append(const RedisArguments& command);
  Result<std::string> error_of_next();
  Fault broken(std::string_view doing);

  const RedisAddress address_;
  const Millis timeout_;
  std::unique_ptr<redisContext, Free> context_;
};

} // namespace oncekey
