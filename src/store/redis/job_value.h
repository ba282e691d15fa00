// job_value: a job as a Redis hash, and its message as a string beside it.
//
// The fields are the members of StoredJob, by their names: numbers and times (in milliseconds) in decimal, flags as "1"
// or "0", the fingerprint as its bytes; last_status, last_reason and last_at are those of the newest attempt; `format`
// is "1". The message is encode_message() of core/record_codec.h. job_script() writes both, here they are only read.
#pragma once

#include "core/job.h"
#include "redis/reply.h"

#include <oncekey/result.h>

namespace oncekey::redis {

// `fields` is the answer to HGETALL.
Result<StoredJob> decode_job_fields(const RecordId& id, RedisReply fields);

} // namespace oncekey::redis
