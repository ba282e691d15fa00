// detached: an operation whose client was promised the answer for later (`Prefer: respond-async`). It goes on without
// its connection, with a copy of all it needs of it.
#pragma once

#include "gateway/execution.h"
#include "gateway/limiting.h"

#include <memory>
#include <string>

namespace oncekey {

class Detached {
 public:
  // Takes over the request's body, its places and its claim, and runs. Key and id stay behind too.
  static void start(GatewayThread& thread, KeyedRequest& request, const Replier& replier, const Sharer& sharer,
                    Limited& limited, NewWork& work, const Claimed& claimed, MonotonicTime before_claim,
                    Verdict verdict);

 private:
  Detached(GatewayThread& thread, KeyedRequest& request, const Replier& replier, const Sharer& sharer, Limited& limited,
           NewWork& work, const Claimed& claimed);
  static Task<void> run(std::unique_ptr<Detached> detached, MonotonicTime before_claim, Verdict verdict);

  GatewayShared& shared_;
  const Counted counted_; // before all others, so that it ends last: a drain waits for it
  const RequestHead head_;
  const std::string peer_;
  const Sharer sharer_;
  BufferedBytes buffered_;
  const KeyedRequest request_;
  Replier replier_;
  const Limited limited_; // for its place
  NewWork work_;
  Execution execution_;
};

} // namespace oncekey
