// new_work: what a request must have to begin something new. docs/LIMITS.md says what is refused first when there is
// too much.
#pragma once

#include "core/refusal.h"
#include "gateway/shared.h"

namespace oncekey {

class NewWork {
 public:
  // Nothing if the request may begin something new: this holds what it takes then. Else why not. `buffered` is what the
  // request holds itself.
  std::optional<Refusal> begin(GatewayShared& shared, const Route& route, const Sharer& sharer,
                               const BufferedBytes& buffered, MonotonicTime now);
  void give_up();

  // How the call that it was held for went.
  void sent(GatewayShared& shared, const Upstream& upstream, CallError error, std::string_view why);
  // A piece of the answer will be kept.
  void answer_grows(std::uint64_t bytes) {
    if (ending_) ending_->grow(bytes);
  }

 private:
  std::optional<Holding> place_;            // of the caller's share in the calls to the upstream
  std::optional<Places::Place> of_all_;     // of limits.max_in_flight
  std::optional<StoreRoom::Ending> ending_; // room in the store for the record's end
  std::optional<UpstreamBreaker::Pass> pass_;
};

// The store has grown by so many bytes on this caller's account.
void count_growth(GatewayShared& shared, const Sharer& sharer, std::uint64_t bytes);

// The breaker hears how a call to its upstream went; the log, if that has opened or closed it.
void tell_breaker(Log& log, const Upstream& upstream, UpstreamBreaker::Pass& pass, CallError error,
                  std::string_view why);

} // namespace oncekey
