// values: records and jobs as Redis keeps them. The scripts write both, here they are only read: a store's server
// decides, we never write a record or a job back.
//
// The value of a record:
//
//   byte      format, 1
//   byte      state, as RecordState
//   byte      flags: 1 took_over, 2 rerun, 4 awaited (a request waits for it), 8 partial (an answer not yet whole)
//   u64 x 4   settled_at, first_received, expires_at, lease_until (milliseconds)
//   u64       fence
//   16 bytes  claimed_by
//   32 bytes  fingerprint
//   u32       length of the texts that follow
//   texts     route, key, method, target and encode_context() of core/record_codec.h, each with its length (u16)
//   answer    of a completed record: the status (u16), and encode_response() of core/record_codec.h
//
// All numbers are little-endian, and stay below 2^53, where Lua's numbers end. What a completion changes stands at the
// two ends: the script keeps the bytes between them in one piece.
//
// A job is a hash, and its message a string beside it (encode_message() of core/record_codec.h). The fields are the
// members of StoredJob, by their names: numbers and times (in milliseconds) in decimal, flags as "1" or "0", the
// fingerprint as its bytes, what was tried as core/attempt_lines.h has it; `format` is "1".
#pragma once

#include "core/codec_parts.h"
#include "core/job.h"
#include "core/store.h"
#include "redis/reply.h"

namespace oncekey::redis {

enum class ReadResponse {
  whole,
  summary, // without headers and body; the value may have been cut off behind the texts
};
Result<Record> decode_value(std::string_view value, ReadResponse response = ReadResponse::whole);
// Does the front of a value end before its texts do, or before the status behind them?
bool is_cut_in_texts(std::string_view front);

// What a claim leaves in the value from the token to the texts.
std::string encode_identity(const ClaimRequest& request);
// Retention and lease of a claim, as the scripts read them.
std::string encode_times(const ClaimRequest& request);
// A number, as the value has it.
template <class Number>
std::string encode_number(Number number) {
  std::string out;
  codec::field(out, number);
  return out;
}

// `fields` is the answer to HGETALL.
Result<StoredJob> decode_job_fields(const RecordId& id, RedisReply fields);

} // namespace oncekey::redis
