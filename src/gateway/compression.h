// compression: gzip for answers of a route with `compress = true`.
//
// Records keep the bytes of the upstream. What is compressed is the copy that goes to a client, anew for each answer: a
// client that does not accept gzip gets the bytes themselves, and both are the same answer once decoded.
#pragma once

#include "http/message.h"
#include "net/loop.h"

#include <cstddef>

namespace oncekey {

// A shorter body does not become shorter by more than its headers grow.
inline constexpr std::size_t kCompressFrom = 1024;
// So much is compressed before other connections have their turn: some 0.4 ms at level 1.
inline constexpr std::size_t kCompressAtOnce = 64u << 10;

// By Accept-Encoding: gzip or x-gzip, else `*`, with a q above 0 that is not below that of identity. Not if the request
// says Cache-Control: no-transform.
bool accepts_gzip(const Headers& request);

// Whether an answer may be compressed for a client that accepts it: a text type of at least kCompressFrom bytes, with
// neither a content coding, a range, a digest of its bytes nor Cache-Control: no-transform.
bool may_compress(int status, const Headers& headers, std::size_t body_bytes);

// The fields of the compressed answer: Content-Encoding is added, and a strong ETag becomes weak, since it names other
// bytes.
Headers headers_of_compressed(const Headers& headers);
// The body under a compressing route depends on Accept-Encoding, also where it is not compressed.
void add_vary(Headers& headers);

// `body` lives until the task ends. Empty when compressing would not make it shorter.
Task<std::string> gzip(Loop& loop, std::string_view body);

} // namespace oncekey
