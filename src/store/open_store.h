// open_store: the one place that maps a URL to a type of store.
#pragma once

#include "base/log.h"

#include <oncekey/result.h>
#include <oncekey/store.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace oncekey {

struct StoreOptions {
  Log& log;
  // Called, at most once and from any thread, when the store can no longer keep its promise (a failed sync). No call
  // is answered after that. The default behaviour of the gateway is to say why and end the process.
  std::function<void(std::string reason)> on_fatal;
  // Below this a store is refused when it is opened, and claims are refused if it falls below later.
  Durability least_durability = Durability::none;
};

// "memory:", "rocksdb:PATH", "postgres://...", "redis://...", "rediss://...", "redis+cluster://...",
// "rediss+cluster://...". A fault says what is wrong with the URL or why the store cannot be opened or used.
Result<std::unique_ptr<Store>> open_store(std::string_view url, const StoreOptions& options);

// Brings the schema of a shared store up to this version, as opening it does.
Status migrate_store(std::string_view url, Log& log);

// An operator's word that what a shared store has forgotten is accounted for: claims are taken again.
Status accept_lost_memory(std::string_view url, Log& log);

} // namespace oncekey
