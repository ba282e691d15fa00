// open_store: the one place that maps a URL to a type of store.
#pragma once

#include "base/log.h"
#include "core/sealing.h"
#include "core/store.h"
#include "store/common/store_note.h"

#include <oncekey/result.h>

namespace oncekey {

struct StoreOptions {
  Log& log;
  // Called, at most once and from any thread, when the store can no longer keep its promise (a failed sync). No call
  // is answered after that. The default behaviour of the gateway is to say why and end the process.
  std::function<void(std::string reason)> on_fatal;
  // Below this a store is refused when it is opened, and claims are refused if it falls below later.
  Durability least_durability = Durability::none;
  // Encrypts what is kept; null: kept in clear. Outlives the store. A store that is encrypted is not opened without its
  // key: the fault says which one is missing or wrong.
  const Sealer* sealer = nullptr;
  // The wall clock counts as right whatever the kernel says: see store/journal/store_clock.h.
  bool trust_clock = false;
};

// "memory:", "journal:PATH", "postgres://...", "redis://...", "rediss://...", "redis+cluster://...",
// "rediss+cluster://...". A fault says what is wrong with the URL or why the store cannot be opened or used.
Result<std::unique_ptr<Store>> open_store(std::string_view url, const StoreOptions& options);

// What is wrong with the URL itself, as far as that can be told without a connection.
Status check_store_url(std::string_view url);

// Brings the schema of a shared store up to this version, as opening it does.
Status migrate_store(std::string_view url, Log& log);

// An operator's word that what a store has forgotten is accounted for: claims are taken again, at once or, for an
// embedded store that no process has open, from its next start on.
enum class LossAccepted { now, at_next_start };
Result<LossAccepted> accept_lost_memory(std::string_view url, Log& log);

// A text that the store keeps for its gateways: a file of an embedded store's folder, a row or field in a shared one.
// Empty until one is written. memory: keeps none. Blocks. After open_store().
Result<std::string> read_store_note(std::string_view url, StoreNote note, Log& log);
// Writes `next` if the text is still `expected`, durably; false if another gateway was first.
Result<bool> write_store_note(std::string_view url, StoreNote note, const std::string& expected,
                              const std::string& next, Log& log);

// Whether the servers of a shared store are there and fit for one. Connects and looks, and changes nothing. Blocks.
Status reach_shared_store(std::string_view url, Log& log);

// Seals the store's secret with the newest key, unless it is sealed with that one. Blocks. For a start that nothing
// refuses any more: from then on the store does not open without the key. After a reload of the keys shared stores do
// so by themselves, with their next look at the marker (Sealer::may_reseal).
Status reseal_secret(std::string_view url, const Sealer& sealer, Log& log);
// Whether the keys, or none, open an embedded store that no process need have open. Says nothing of the other kinds.
Status check_sealed_secret(std::string_view url, const Sealer* sealer);

// Whether this version reads the format of an embedded store, which another process may have open. Says nothing of the
// other kinds, nor of a store that does not exist yet.
Status check_store_format(std::string_view url);

// The folder of an embedded store; nothing for the other kinds.
std::optional<std::string> folder_of_store(std::string_view url);

} // namespace oncekey
