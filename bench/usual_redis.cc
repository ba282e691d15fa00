#include "usual_redis.h"

#include "load.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <cstdlib>
#include <memory>
#include <vector>

namespace oncekey::bench {

UsualRedis run_usual_redis(const std::string& address, std::size_t connections, std::uint64_t pairs, double seconds) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) stop("a Redis is named by HOST:PORT");
  const std::string host = address.substr(0, colon);
  const int port = std::atoi(address.c_str() + colon + 1);
  struct Free {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  std::vector<std::unique_ptr<redisContext, Free>> open;
  for (std::size_t i = 0; i < connections; ++i) {
    open.emplace_back(redisConnect(host.c_str(), port));
    if (!open.back() || open.back()->err != 0) stop("no Redis at " + address);
  }
  const auto read_replies = [&open] {
    for (const auto& context : open) {
      void* reply = nullptr;
      if (redisGetReply(context.get(), &reply) != REDIS_OK || reply == nullptr) stop("Redis does not answer");
      if (static_cast<redisReply*>(reply)->type == REDIS_REPLY_ERROR) stop("Redis answered with an error");
      freeReplyObject(reply);
    }
  };
  const auto flush = [&open] {
    for (const auto& context : open) {
      int done = 0;
      while (done == 0) {
        if (redisBufferWrite(context.get(), &done) != REDIS_OK) stop("Redis went away");
      }
    }
  };
  const std::string response(600, 'r');
  const std::string claim(200, 'c');
  const auto nonce = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  // One call on every connection, then all the answers.
  const auto send_all = [&](std::uint64_t round, const char* command, const std::string& value) {
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::string key = fmt::format("{}:{}:{}", nonce, round, i);
      redisAppendCommand(open[i].get(), command, key.data(), key.size(), value.data(), value.size());
    }
    flush();
    read_replies();
  };
  const Clock::time_point start = Clock::now();
  UsualRedis done;
  for (std::uint64_t round = 0; done.pairs < pairs && seconds_since(start) < seconds; ++round) {
    send_all(round, "SET %b %b NX PX 86400000", claim);
    send_all(round, "SET %b %b PX 86400000", response);
    done.pairs += connections;
  }
  done.seconds = seconds_since(start);
  return done;
}

} // namespace oncekey::bench
