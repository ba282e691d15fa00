// KeyPages: the pages about keys: lists, one key's life, and what operators do with it.
//
// Belongs to the loop of the operators.
#pragma once

#include "admin/audit_trail.h"
#include "admin/key_search.h"
#include "admin/page.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"

namespace oncekey {

// A state in the words of the API; nothing for another word.
std::optional<KeysShown> shown_keys(std::string_view state);
inline constexpr std::string_view kKeyStates =
    "state is one of waiting, abandoned, indeterminate, in_progress, completed";
inline constexpr std::size_t kKeysUsual = 100;
// Records that one listing or search looks at: some tenths of a second in most stores.
inline constexpr std::size_t kKeysLookMax = 100'000;

class KeyPages {
 public:
  KeyPages(GatewayShared& shared, Loop& loop, AuditTrail& audit) : shared_(shared), loop_(loop), audit_(audit) {}

  Task<PageAnswer> list(PageRequest& asked);
  Task<PageAnswer> find(PageRequest& asked);
  // One record, with its life as far as it is known.
  Task<PageAnswer> show(PageRequest& asked);
  Task<PageAnswer> act(PageRequest& asked);

 private:
  Task<Result<BrowsePage>> browse(BrowseRequest request);
  // The newest records of an account, looked through one by one.
  Task<Result<BrowsePage>> browse_account(BrowseRequest request, KeySearch search);
  Task<Result<std::optional<Found>>> look_up(const RecordId& id);
  // What an id or the beginning of one names. `invalid`: nothing; `conflict`: several.
  Task<Result<Found>> find_by_id(std::string_view id_text, RecordId& id);
  boost::json::object key_json(const RecordId& id, const Record& record, Time now) const;
  boost::json::object page_json(const BrowsePage& page) const;
  boost::json::array timeline(const RecordId& id, const Record& record, const RecordTrail& trail, Time now) const;
  // The error for an operator who acts on a key whose lease is live.
  Task<std::string> why_live(const RecordId& id);

  GatewayShared& shared_;
  Loop& loop_;
  AuditTrail& audit_;
};

} // namespace oncekey
