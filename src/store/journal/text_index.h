// text_index: which records of a bucket have a key's text, so that a search by it looks at few records.
//
// Made when a segment is sealed. Entries go with their bucket, and may name records that are gone or were claimed anew
// since: a search looks the record up and compares the text. The hash is keyed with the store's secret: a text cannot
// be guessed from the index alone.
//
//   key    "k" hash of the text:16 bytes id:32 bytes, with no value
#pragma once

#include "base/crypto.h"

#include <oncekey/record.h>

#include <array>
#include <string>
#include <string_view>

namespace oncekey {

inline constexpr std::size_t kTextHashBytes = 16;

// What the keys of all records with this text begin with.
inline std::string text_key(const KeyedHash& by_secret, std::string_view text) {
  const std::array<std::string_view, 2> parts{"key's text", text};
  const HashBytes hash = by_secret.of(parts);
  return "k" + std::string(reinterpret_cast<const char*>(hash.data()), kTextHashBytes);
}
inline bool is_text_key(std::string_view key) { return key.size() == 1 + kTextHashBytes + sizeof(RecordId); }

} // namespace oncekey
