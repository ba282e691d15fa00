#include "usual_redis.h"

#include "load.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

namespace oncekey::bench {
namespace {

// One connection of the pool: a claim, and when that is answered the response.
class UsualConnection {
 public:
  UsualConnection(const std::string& host, int port) : context_(redisConnect(host.c_str(), port)) {
    if (!context_ || context_->err != 0) stop(fmt::format("no Redis at {}:{}", host, port));
  }
  int socket() const { return context_->fd; }

  void begin_pair(std::string key) {
    static const std::string claim(200, 'c');
    key_ = std::move(key);
    claimed_ = false;
    send("SET %b %b NX PX 86400000", claim);
  }
  // Reads what there is to read. True when the pair is complete.
  bool go_on() {
    static const std::string response(600, 'r');
    void* reply = nullptr;
    if (redisBufferRead(context_.get()) != REDIS_OK || redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK) {
      stop("Redis does not answer");
    }
    if (reply == nullptr) return false;
    if (static_cast<redisReply*>(reply)->type != REDIS_REPLY_STATUS) stop("Redis refused a SET");
    freeReplyObject(reply);
    if (claimed_) return true;
    claimed_ = true;
    send("SET %b %b PX 86400000", response);
    return false;
  }

 private:
  void send(const char* command, const std::string& value) {
    redisAppendCommand(context_.get(), command, key_.data(), key_.size(), value.data(), value.size());
    for (int done = 0; done == 0;) {
      if (redisBufferWrite(context_.get(), &done) != REDIS_OK) stop("Redis went away");
    }
  }

  struct Free {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  std::unique_ptr<redisContext, Free> context_;
  std::string key_;
  bool claimed_ = false;
};

} // namespace

UsualRedis run_usual_redis(const std::string& address, std::size_t connections, std::uint64_t pairs, double seconds) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) stop("a Redis is named by HOST:PORT");
  const std::string host = address.substr(0, colon);
  const int port = std::atoi(address.c_str() + colon + 1);
  std::vector<UsualConnection> pool;
  for (std::size_t i = 0; i < connections; ++i) pool.emplace_back(host, port);
  const int poll = ::epoll_create1(EPOLL_CLOEXEC);
  for (UsualConnection& each : pool) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &each}};
    if (::epoll_ctl(poll, EPOLL_CTL_ADD, each.socket(), &event) != 0) stop("epoll_ctl failed");
  }

  const auto nonce = mixed(static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()));
  std::uint64_t begun = 0;
  const auto next_key = [&] { return fmt::format("{:016x}:{}", nonce, begun++); };
  const Clock::time_point start = Clock::now();
  for (UsualConnection& each : pool) each.begin_pair(next_key());
  UsualRedis done;
  std::array<epoll_event, 256> events;
  for (std::size_t busy = pool.size(); busy > 0;) {
    const int count = ::epoll_wait(poll, events.data(), static_cast<int>(events.size()), -1);
    const bool goes_on = begun < pairs && seconds_since(start) < seconds;
    for (int i = 0; i < count; ++i) {
      auto& connection = *static_cast<UsualConnection*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (!connection.go_on()) continue;
      ++done.pairs;
      if (goes_on) {
        connection.begin_pair(next_key());
      } else {
        --busy;
      }
    }
  }
  done.seconds = seconds_since(start);
  ::close(poll);
  return done;
}

} // namespace oncekey::bench
