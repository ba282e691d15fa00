// record_codec: records as bytes. The format is docs/RECORD_FORMAT.md.
#pragma once

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

// Appends the encoded record to `out`.
void encode_record(const Record& record, std::string& out);

enum class DecodeBody { yes, no };

// Verifies the checksum, then parses. A wrong checksum or shape is `corrupt`; a later format version is `newer_format`
// with a message that says which version wrote it and what to do. With DecodeBody::no the response's headers and body
// are left empty: for listings and for deciding, where megabytes of body would be copied for nothing.
Result<Record> decode_record(std::string_view bytes, DecodeBody body = DecodeBody::yes);

} // namespace oncekey
