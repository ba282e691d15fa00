// listing: shows records and jobs to people; interleaved with the calls that matter more.
//
// There is no index by time: it would cost every claim a command. So a look goes through a bounded number of keys in
// the server's order; a page for browsing keeps the newest that fit. Keys that are not settled are fields of the
// markers (script_call.h), and found without a look at the others.
#pragma once

#include "store/redis/servers.h"

namespace oncekey::redis {

// On the loop's thread. The servers outlive the tasks.
Task<Result<std::vector<Listed>>> list_records(Servers& servers, ListRequest request);
Task<Result<BrowsePage>> browse_records(Servers& servers, BrowseRequest request);
// Forgets some of what has expired on the way.
Task<Result<WaitingKeys>> count_waiting_records(Servers& servers);

Task<Result<JobPage>> list_jobs(Servers& servers, JobListRequest request);
// By counters that the scripts keep.
Task<Result<std::vector<JobCount>>> count_jobs(Servers& servers);

} // namespace oncekey::redis
