// pending: what was done to a store by a command that has no audit log, until a gateway has put it into its own.
//
// Commands such as `oncekey store accept-loss` work without a gateway. They leave their action in the store, and the
// next gateway that looks writes it into its log and takes it away, in this order: after a crash in between it stands
// in the log twice, and never not at all.
//
// Pure: no files, no clock.
#pragma once

#include <oncekey/result.h>

#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct PendingAction {
  std::string time; // as timestamp() writes it
  std::string who;
  std::string action; // "accept_loss"
  std::string result;
  std::string reason;
  friend bool operator==(const PendingAction&, const PendingAction&) = default;
};

// More are not kept: the oldest are forgotten where no gateway on the store has an audit log.
inline constexpr std::size_t kPendingMax = 100;

// One JSON object a line. Nothing is the empty text.
std::string encode_pending(const std::vector<PendingAction>& actions);
// A fault if the text has another shape.
Result<std::vector<PendingAction>> decode_pending(std::string_view text);

} // namespace oncekey
