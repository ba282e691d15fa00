// job_codec: jobs and their messages as bytes. The format is docs/RECORD_FORMAT.md.
//
// Two values, because they are written at different times: the message once, when the job is staged, and the small
// state with every step.
#pragma once

#include "core/job.h"

#include <oncekey/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey {

// The versions this build writes, and the newest it reads.
inline constexpr std::uint8_t kJobFormat = 1;
inline constexpr std::uint8_t kMessageFormat = 1;

// Appends the job's state to `out`, without its id: the id is the key it is stored under.
void encode_job(const StoredJob& job, std::string& out);
// A wrong checksum or shape is `corrupt`; a later format version is `newer_format`.
Result<StoredJob> decode_job(const RecordId& id, std::string_view bytes);

void encode_message(const Message& message, std::string& out);
Result<Message> decode_message(std::string_view bytes);

} // namespace oncekey
