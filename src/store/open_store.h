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
};

// "memory:" or "rocksdb:PATH". A fault says what is wrong with the URL or why the store cannot be opened.
Result<std::unique_ptr<Store>> open_store(std::string_view url, const StoreOptions& options);

} // namespace oncekey
