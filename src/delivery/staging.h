// staging: a message as the claim that remembers its key and stages its delivery. The same for the inbox and the
// outbox.
#pragma once

#include "base/crypto.h"
#include "config/config.h"

#include "core/store.h"

#include <string>
#include <string_view>

namespace oncekey {

// Names something of one place: an event of a webhook, a message to a destination, an order of either.
RecordId name_of(const KeyedHash& hash, std::string_view what, std::string_view place, std::string_view name);

// Of what an application stages itself; a webhook has its own max_body.
inline constexpr std::uint64_t kMessageBytesMax = 4u << 20;

// What a message is claimed with, besides what its endpoint says.
struct Claimable {
  RecordId id;
  Fingerprint fingerprint{};
  std::string method = "POST";
  std::string key;
  StoredResponse message;
  bool ordered = false;
};
ClaimRequest staging_claim(const Endpoint& endpoint, Claimable message);

} // namespace oncekey
