// status_page: the URL under which an operation's answer is fetched whose client was told to come back for it.
#pragma once

#include "core/status_url.h"
#include "gateway/replier.h"

#include <optional>

namespace oncekey {

class StatusPage {
 public:
  explicit StatusPage(GatewayThread& thread) : thread_(thread), shared_(thread.shared) {}

  Task<void> answer(Exchange& exchange);

 private:
  Task<void> answer_for(Exchange& exchange, const Route& route, const OperationName& named);
  // What the URL names, if it belongs to the one who asks; `id` is then its record's.
  Task<Result<std::optional<Found>>> find(Exchange& exchange, const Route& route, const OperationName& named,
                                          const Principal& principal, RecordId& id);
  Task<void> answer_from(Exchange& exchange, const Route& route, Replier& replier, const RecordId& id,
                         const Found& found);

  GatewayThread& thread_;
  GatewayShared& shared_;
};

} // namespace oncekey
