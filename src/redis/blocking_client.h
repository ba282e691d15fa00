// BlockingClient: the same client for a caller without an event loop. Runs one on the caller's thread until the answers
// are there or the time is up.
//
// Connects when it is first used, and again after the connection was lost. In a cluster it follows the server's
// redirections, so that all commands of one run() must be for one slot. For one thread at a time.
#pragma once

#include "redis/connection.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace oncekey::redis {

class BlockingClient {
 public:
  // redis_url.h has the URLs. A call_timeout in it comes before `timeout`.
  static Result<std::unique_ptr<BlockingClient>> make(RedisUrl url, Millis timeout);

  // Sends all commands, then waits for all answers: one for each, in their order. Error replies are among the answers.
  // A fault of kind `timeout` means that it is not known whether the command was executed.
  std::vector<Result<OwnedReply>> run(std::span<const std::string> commands);
  // The next run() connects anew.
  void disconnect();

 private:
  BlockingClient(RedisUrl url, ConnectionOptions options, Millis timeout);
  std::vector<Result<OwnedReply>> exchange(std::span<const std::string> commands, MonotonicTime deadline);

  const RedisUrl url_;
  const ConnectionOptions options_;
  const Millis timeout_;
  Loop loop_;
  std::shared_ptr<RedisConnection> connection_;
  std::optional<Host> moved_to_; // by the last redirection
  std::size_t turn_ = 0;         // of the URL's hosts
};

} // namespace oncekey::redis
