// browsing: shows keys to people. There is no index by time: it would cost every claim a command. So a look goes
// through a bounded number of records in the server's order and keeps the newest that fit. Keys that are not settled
// are fields of the markers (scripts.h), and found without a look at the others.
#pragma once

#include "store/redis/servers.h"

#include "core/store.h"

namespace oncekey::redis {

// `now` is the store's clock. The servers and names outlive the task.
Task<void> browse_records(Servers& servers, const KeyNames& names, BrowseRequest request, Time now,
                          Done<BrowsePage> done);

// Forgets some of what has expired on the way.
Task<void> count_waiting_records(Servers& servers, const KeyNames& names, Time now, Done<WaitingKeys> done);

} // namespace oncekey::redis
