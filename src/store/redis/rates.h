// Rates: token buckets in Redis, shared by all gateways on it.
//
// A bucket is a small hash that expires when it would be full again. One script run takes a token, on the server's
// clock. A server that does not answer within 250 ms is a fault, and the gateway then lets the request pass: a limiter
// must not be slower than what it limits.
#pragma once

#include "store/redis/servers.h"

#include "core/rate_keeper.h"

#include <string>

namespace oncekey::redis {

class Rates final : public RateKeeper {
 public:
  Rates(Loop& loop, Servers& servers, const KeyNames& names) : loop_(loop), servers_(servers), names_(names) {}

  void take(const RateBucketId& bucket, const Rate& rate, std::function<void(Result<Taken>)> done) override;
  void give_back(const RateBucketId& bucket, const Rate& rate) override;

 private:
  struct Question;
  std::string script_run(const RateBucketId& bucket, const Rate& rate, std::string_view tokens) const;
  void send(std::uint32_t partition, const std::string& command, const std::shared_ptr<Question>& question);

  Loop& loop_;
  Servers& servers_;
  const KeyNames& names_;
};

} // namespace oncekey::redis
