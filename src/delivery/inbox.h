// Inbox: takes webhooks. docs/WEBHOOKS.md.
//
// Nothing is believed before its signature is: verification comes before any work of the store. An event that is
// believed is remembered and staged in one step, and then acknowledged; a repetition finds that step done and is
// acknowledged as well. Without a store there is no acknowledgement, so that the sender tries again.
#pragma once

#include "delivery/couriers.h"
#include "http/server.h"
#include "signatures/provider.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// One for each thread.
class Inbox {
 public:
  static Result<std::unique_ptr<Inbox>> make(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers,
                                             Loop& context);

  // Null if no webhook has this path, which is in normal form.
  struct Hook;
  const Hook* find(std::string_view path) const;
  bool empty() const { return hooks_.empty(); }
  // Servers may take the path for that of a webhook, and for another one too.
  bool ambiguous(const NormalPath& path, const Hook* hook) const;
  Task<void> refuse_path(Exchange& exchange, std::string why);
  Task<void> receive(Exchange& exchange, const Hook& hook);
  ~Inbox();

 private:
  Inbox(GatewayShared& shared, DeliveryMetrics& metrics, Couriers& couriers, Loop& context);
  void note(const Exchange& exchange, const Hook& hook, std::string_view result) const;
  void count(const Exchange& exchange, const Hook& hook, std::string_view result);
  Task<void> stage(Exchange& exchange, const Hook& hook, const Verified& verified, std::string body);

  GatewayShared& shared_;
  DeliveryMetrics& metrics_;
  Couriers& couriers_;
  Loop& loop_;
  std::vector<std::unique_ptr<Hook>> hooks_;
};

// The public listener's handler: webhooks go to the inbox, everything else to the gateway.
class FrontDoor final : public Handler {
 public:
  FrontDoor(Inbox& inbox, Handler& gateway) : inbox_(inbox), gateway_(gateway) {}
  Task<void> handle(Exchange& exchange) override;

 private:
  Inbox& inbox_;
  Handler& gateway_;
};

} // namespace oncekey
