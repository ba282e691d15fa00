// identity_rules: the rules by which a request finds its record, and whether a change of them would lose records.
//
// A record is found by a hash over account, key and, where the route says so, method and path. With another `scope`,
// `identity` or `key_from` every hash differs: the records are still there, but no request finds them, and each retry
// is executed again. Removing a route, or a new route in front of it that takes its requests, has the same effect. A
// new route for requests that matched no route loses nothing.
#pragma once

#include "config/config.h"

#include <oncekey/result.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// One route, in the order of the file.
struct IdentityRule {
  std::string path;
  std::vector<std::string> methods;
  PathCase path_case = PathCase::exact;
  std::string identity; // "scope=... identity=... key_from=..."; empty where nothing is kept (mode = "observe")
  friend bool operator==(const IdentityRule&, const IdentityRule&) = default;
};
using IdentityRules = std::vector<IdentityRule>;

IdentityRules identity_rules_of(const Config& config);

// The entries of accounts files, as Accounts::digests() has them, by the file's path.
using AccountEntries = std::map<std::string, std::vector<std::string>>;

// All that decides which record a request finds.
struct IdentityBasis {
  IdentityRules rules;
  AccountEntries accounts;
  friend bool operator==(const IdentityBasis&, const IdentityBasis&) = default;
};

// Reads the accounts files. A fault says which cannot be read.
Result<IdentityBasis> identity_basis_of(const Config& config);

// Which records made under the rules `before` would not be found under `after`, one sentence each; empty if all are
// found. Where it is undecided how globs overlap, it assumes that records would be lost.
std::vector<std::string> lost_identities(const IdentityRules& before, const IdentityRules& after);
std::vector<std::string> lost_identities(const IdentityBasis& before, const IdentityBasis& after);

// How many credentials have an entry now that had none before, by file. A credential without an entry is an account of
// its own: what it has sent before is not found any more. Files that are new are left out.
std::map<std::string, std::size_t> added_accounts(const AccountEntries& before, const AccountEntries& after);

// One line for each rule and each file, for the store to remember. decode() returns a fault for any other text.
std::string encode(const IdentityBasis& basis);
Result<IdentityBasis> decode_identity_basis(std::string_view text);

} // namespace oncekey
