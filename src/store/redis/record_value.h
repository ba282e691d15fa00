// record_value: a record as the value of a Redis key.
//
//   byte      format, 1
//   byte      state, as RecordState
//   byte      flags: 1 took_over, 2 rerun, 4 awaited (a request waits for it), 8 partial (omitted body not yet whole)
//   u64 x 5   fence, first_received, expires_at, lease_until, settled_at (milliseconds)
//   u16       status of the response, 0 without one
//   32 bytes  fingerprint
//   16 bytes  claimed_by
//   u32       length of the texts that follow
//   texts     route, key, method, target, each with its length (u16) in front
//   response  the rest: encode_response() of core/record_codec.h, empty without one
//
// All numbers are little-endian. The scripts write it (Lua's struct library), here it is only read: a store's server
// decides, we never write a record back. Numbers stay below 2^53, where Lua's numbers end.
#pragma once

#include "core/store.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey::redis {

inline constexpr std::uint8_t kValueFormat = 1;
inline constexpr std::size_t kValueHeadBytes = 97;

enum class ReadResponse {
  whole,
  summary, // without headers and body; the value may have been cut off behind the texts
};
Result<Record> decode_value(std::string_view value, ReadResponse response = ReadResponse::whole);

// What a claim leaves in the value from the fingerprint to the texts.
std::string encode_identity(const ClaimRequest& request);
// Retention and lease of a claim, and numbers, as the scripts read them.
std::string encode_times(const ClaimRequest& request);
std::string encode_fence(std::uint64_t fence);
std::string encode_status(int status);

} // namespace oncekey::redis
