#include "core/accounts.h"

#include "base/crypto.h"
#include "base/faults.h"

#include <oncekey/headers.h>

#include <algorithm>

namespace oncekey {
namespace {

constexpr std::string_view kHashed = "sha256:";

std::string hash_of(std::string_view credential) {
  Sha256 hash;
  hash.update(credential);
  const HashBytes bytes = hash.finish();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace

Status Accounts::add(std::string_view credential, std::string_view account) {
  if (account.empty()) return invalid("the account has no name");
  if (credential.empty()) return invalid("the credential is empty");
  std::string hash;
  if (credential.starts_with(kHashed)) {
    auto bytes = hex_decode(credential.substr(kHashed.size()));
    if (!bytes || bytes->size() != std::tuple_size_v<HashBytes>)
      return invalid("expected 64 hex digits behind sha256:, as `printf %s KEY | sha256sum` prints them");
    hash = *std::move(bytes);
  } else {
    hash = hash_of(credential);
  }
  if (!by_hash_.emplace(std::move(hash), account).second)
    return invalid("a credential of account \"{}\" stands in the file before, plain or hashed", account);
  return ok_status();
}

const std::string* Accounts::of(std::string_view credential) const {
  const auto found = by_hash_.find(hash_of(credential));
  return found == by_hash_.end() ? nullptr : &found->second;
}

bool Accounts::keeps(const Accounts& older) const {
  for (const auto& [hash, account] : older.by_hash_) {
    const auto found = by_hash_.find(hash);
    if (found == by_hash_.end() || found->second != account) return false;
  }
  return true;
}

std::vector<std::string> Accounts::digests() const {
  constexpr std::size_t kDigestBytes = 8;
  std::vector<std::string> all;
  all.reserve(by_hash_.size());
  for (const auto& [hash, account] : by_hash_) {
    Sha256 digest;
    digest.update(hash); // of fixed length, so that nothing need separate the two
    digest.update(account);
    const HashBytes bytes = digest.finish();
    all.push_back(hex_encode({reinterpret_cast<const char*>(bytes.data()), kDigestBytes}));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string_view credential_in(std::string_view header_name, std::string_view value) {
  if (!equal_ignoring_case(header_name, "Authorization")) return value;
  const std::size_t blank = value.find(' ');
  if (blank == std::string_view::npos) return value;
  value.remove_prefix(blank);
  while (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

} // namespace oncekey
