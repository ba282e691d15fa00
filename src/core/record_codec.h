// record_codec: records, jobs and messages as bytes. The format is docs/RECORD_FORMAT.md.
#pragma once

#include "core/codec_parts.h"
#include "core/job.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace oncekey {

// The version this build writes, and the newest it reads.
inline constexpr std::uint8_t kRecordFormat = 1;

// At most so many bytes does the encoded record have.
std::size_t encoded_bytes_max(const Record& record);
// Appends the encoded record to `out`.
void encode_record(const Record& record, std::string& out);

enum class DecodeBody { yes, no };

// Verifies the checksum, then parses. A wrong checksum or shape is `corrupt`; a later format version is `newer_format`
// with a message that says which version wrote it and what to do. With DecodeBody::no the response's headers and body
// are left empty, and of a sealed one the bytes: for listings and for deciding, where megabytes of body would be copied
// for nothing.
Result<Record> decode_record(std::string_view bytes, DecodeBody body = DecodeBody::yes);

// When a record was first received and its key's text, without a look at the rest. The key points into `record`.
struct RecordFront {
  Time first_received;
  std::string_view key;
};
RecordFront front_of(std::string_view record);

// Where a claim came from, alone, in the same manner but without a checksum: for stores that keep it beside a token.
void encode_context(const ClaimContext& context, std::string& out);
Result<ClaimContext> decode_context(std::string_view bytes);

// The response alone, in the same manner: for stores that keep a record's other parts as columns or fields.
void encode_response(const StoredResponse& response, std::string& out);
Result<StoredResponse> decode_response(std::string_view bytes, DecodeBody body = DecodeBody::yes);
// Status and reason out of so many bytes at its front, unverified: for listings, which need not read the rest. What did
// not fit is left out.
inline constexpr std::size_t kResponseFrontBytes = 256;
StoredResponse response_at_front(std::string_view bytes);

// A job and its message are two values, because they are written at different times: the message once, when the job is
// staged, and the small state with every step.
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
