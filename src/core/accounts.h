// accounts: which account a credential belongs to.
//
// An API key that is rotated is another credential of the same account. Without the map the new key would be a new
// account, and a retry under it would execute a second time. Credentials are kept as SHA-256, so that neither the file
// nor a memory image need hold them.
#pragma once

#include <oncekey/result.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace oncekey {

class Accounts {
 public:
  // `credential` is "sha256:" with 64 hex digits, or the credential itself.
  Status add(std::string_view credential, std::string_view account);
  // Null for a credential that is not in the map: it stays an account of its own.
  const std::string* of(std::string_view credential) const;
  // Whether every credential of `older` still has its account here. If not, that account's keys would be forgotten.
  bool keeps(const Accounts& older) const;
  // One text of 16 hex digits for each credential and its account, sorted: enough to notice later that an entry is gone
  // or has another account, and not to learn either.
  std::vector<std::string> digests() const;
  std::size_t size() const { return by_hash_.size(); }

 private:
  std::unordered_map<std::string, std::string> by_hash_;
};

// What is looked up for a header's value: the value, without the scheme where the header is Authorization.
std::string_view credential_in(std::string_view header_name, std::string_view value);

} // namespace oncekey
