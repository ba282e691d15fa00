// listing: looks through all records of a store. For people; interleaved with the calls that matter more.
#pragma once

#include "store/redis/servers.h"

#include "core/store.h"

#include <vector>

namespace oncekey::redis {

// `now` is the store's clock.
Task<void> list_records(Servers& servers, const KeyNames& names, ListRequest request, Time now,
                        Done<std::vector<Listed>> done);

} // namespace oncekey::redis
