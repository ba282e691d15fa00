// sql_parts: small pieces that statements are made of and rows are read with.
#pragma once

#include "core/record_codec.h"
#include "store/postgres/server.h"
#include "store/postgres/values.h"

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace oncekey::postgres {

// What the statements carry besides the calls.
struct SqlTerms {
  KnownMarker marker; // of the store as we know it; claims are refused on any other
  Millis skew{};
  TextEncoding encoding = TextEncoding::utf8;
};

inline std::string_view view_of(const std::uint8_t* bytes, std::size_t size) {
  return {static_cast<const char*>(static_cast<const void*>(bytes)), size};
}
template <class Tag>
std::string_view view_of(const Digest<Tag>& digest) {
  return view_of(digest.bytes.data(), digest.bytes.size());
}

// The lock of an id: some of its bits, which are as good as any others. Ids that share one take turns, nothing more.
inline std::int64_t lock_of(const RecordId& id) {
  std::int64_t lock;
  std::memcpy(&lock, id.bytes.data() + 8, sizeof lock);
  return lock;
}

inline Time time_at(const Row& row, int column) { return Time{Millis{row.int8(column)}}; }

template <class Bytes>
bool copy_exactly(std::string_view from, Bytes& to) {
  if (from.size() != to.size()) return false;
  std::memcpy(to.data(), from.data(), to.size());
  return true;
}

inline bool is_partial(const StoredResponse& response) { return response.unfinished(); }

inline std::string encoded(const StoredResponse& response) {
  std::string bytes;
  encode_response(response, bytes);
  return bytes;
}

} // namespace oncekey::postgres
