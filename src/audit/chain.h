// chain: how the lines of an audit log hang together.
//
// Each line is one JSON object. It begins with its number and the hash of the line before it:
//
//     {"n":18,"prev":"9f0c…64 hex digits","time":"2026-01-02T03:04:05.678Z","event":"replayed",…}
//
// Numbers begin with 1 and have no gaps; the first line names the hash of no line, which is 64 zeros. A hash is an
// HMAC-SHA-256 over the whole line without its newline. Its key is kept in the store, so that a line can neither be
// changed nor be made without the store. The newest line, the head, is kept in the store as well, so that lines that
// were removed from the end are missed. docs/AUDIT.md says what this proves and what it does not.
//
// A line that was torn by a crash or a full disk stays in the file. The line after it continues from the last whole one
// and says how many bytes were torn.
//
// Pure: no files, no clock.
#pragma once

#include "base/crypto.h"

#include <oncekey/result.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// The newest line of a chain; of an empty one, the number 0 and the hash of no line.
struct ChainHead {
  std::uint64_t n = 0;
  std::string hash = std::string(64, '0');
  friend bool operator==(const ChainHead&, const ChainHead&) = default;
};

// Longer lines are not part of a chain. Keys, routes and reasons are cut before they come near.
inline constexpr std::size_t kAuditLineMax = 16u << 10;

// The line that follows `before`: `members` are those of its object behind the first two, without the closing brace.
// Neither has a newline.
std::string chained_line(const ChainHead& before, std::string_view members);

// What a line says about its place; nothing if it does not begin as a line of a chain, or is longer than it may be.
struct ChainPlace {
  std::uint64_t n = 0;
  std::string_view prev; // a view into the line
};
std::optional<ChainPlace> place_of(std::string_view line);

// The hash of lines, under one key. A value; safe to use from several threads at once.
class ChainHash {
 public:
  explicit ChainHash(std::string_view key) : hmac_(HashAlgorithm::sha256, key) {}
  std::string of(std::string_view line) const;

 private:
  Hmac hmac_;
};

// What a store keeps for the audit logs of its gateways: the key of their hashes, and the head of each chain. One text,
// of one word in front and its values in each row.
struct ChainHeads {
  struct Kept {
    ChainHead head;
    std::string time; // of keeping it
    friend bool operator==(const Kept&, const Kept&) = default;
  };
  std::string key;                             // 32 random bytes
  std::map<std::string, Kept, std::less<>> of; // by the name of the chain

  // Keeps the head of a chain. Of more chains than kChainsMax the one that was kept longest ago is forgotten: gateways
  // in containers may have a new name with each start.
  void keep(const std::string& chain, ChainHead head, std::string time);
  static constexpr std::size_t kChainsMax = 1000;
};
// With a new key.
ChainHeads new_chain_heads();
std::string encode(const ChainHeads& heads);
Result<ChainHeads> decode_chain_heads(std::string_view text);

} // namespace oncekey
