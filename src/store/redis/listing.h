// listing: looks through all records or jobs of a store. For people; interleaved with the calls that matter more.
#pragma once

#include "store/redis/servers.h"

#include "core/job_store.h"
#include "core/store.h"

#include <vector>

namespace oncekey::redis {

// `now` is the store's clock.
Task<void> list_records(Servers& servers, const KeyNames& names, ListRequest request, Time now,
                        Done<std::vector<Listed>> done);
Task<void> list_jobs(Servers& servers, const KeyNames& names, JobListRequest request, Time now, Done<JobPage> done);

// By counters that the scripts keep.
Task<void> count_jobs(Loop& loop, Servers& servers, const KeyNames& names, Done<std::vector<JobCount>> done);

} // namespace oncekey::redis
