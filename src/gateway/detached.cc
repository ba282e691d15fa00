#include "gateway/detached.h"

#include <exception>
#include <utility>

namespace oncekey {

Detached::Detached(GatewayThread& thread, KeyedRequest& request, const Replier& replier, const Sharer& sharer,
                   Limited& limited, NewWork& work, const Claimed& claimed)
    : shared_(thread.shared),
      counted_(shared_.detached),
      head_(request.head),
      peer_(request.from.peer),
      sharer_(sharer, shared_.shares),
      buffered_(shared_, sharer_),
      request_{head_, {peer_, request.from.secure}, request.route, request.admitted, std::move(request.body), true},
      replier_(replier, nullptr),
      limited_(std::move(limited)),
      work_(std::move(work)),
      execution_(thread, request_, claimed, replier_, sharer_, buffered_, work_) {
  buffered_.hold(request_.body.capacity());
}

void Detached::start(GatewayThread& thread, KeyedRequest& request, const Replier& replier, const Sharer& sharer,
                     Limited& limited, NewWork& work, const Claimed& claimed, MonotonicTime before_claim,
                     Verdict verdict) {
  std::unique_ptr<Detached> detached(new Detached(thread, request, replier, sharer, limited, work, claimed));
  spawn(run(std::move(detached), before_claim, verdict));
}

Task<void> Detached::run(std::unique_ptr<Detached> detached, MonotonicTime before_claim, Verdict verdict) {
  try {
    // If the lease is lost, another owner has the answer, and no client waits for it here.
    (void)co_await detached->execution_.run(before_claim, verdict);
  } catch (const std::exception& error) {
    // The claim is left to its lease, as after a crash.
    detached->shared_.log.error("request_failed",
                                {{"key", short_hash(detached->request_.admitted.id)}, {"reason", error.what()}});
  }
}

} // namespace oncekey
