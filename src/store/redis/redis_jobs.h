// redis_jobs: the jobs of a Redis store.
//
// A job lives in the partition of its id, with a queue of due jobs for each route there. A take goes to the partitions
// in which this gateway knows of jobs of the route, and to some others in turn.
#pragma once

#include "store/redis/servers.h"

namespace oncekey::redis {

using Submit = std::function<void(CallPtr call, AnyCall what)>;
// The servers are used for as long as calls are submitted.
std::unique_ptr<JobStore> redis_jobs(Servers& servers, Submit submit);

} // namespace oncekey::redis
