#include <oncekey/derive.h>

#include "base/crypto.h"

#include <cstdint>
#include <span>

namespace oncekey {
namespace {

void add_part(Sha256& hash, std::string_view part) {
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(static_cast<std::uint64_t>(part.size()) >> (8 * i)));
  hash.update(length);
  hash.update(part);
}

} // namespace

std::string derive(std::string_view key, std::string_view label) {
  Sha256 hash;
  add_part(hash, "oncekey derive 1");
  add_part(hash, key);
  add_part(hash, label);
  const HashBytes bytes = hash.finish();
  return uuid_text(std::span(bytes).first<16>(), UuidVersion::custom_hash);
}

} // namespace oncekey
