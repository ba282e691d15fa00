// identity_rules: by which rules a request finds its record, and whether other rules would lose records.
//
// A record is found by a hash over account, key and, where the route says so, method and path. With another `scope`,
// `identity`, `key_from` and the like every hash is another one: the records are still there and no request finds them,
// so that each retry is executed again. A route that is gone, or that another one takes the requests of, has the same
// effect. New routes for requests that no route had lose nothing.
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

// What records made under the rules `before` would no longer be found under `after`, one sentence each; empty if all
// are found. Where globs overlap in ways that cannot be told apart, it says that records would be lost.
std::vector<std::string> lost_identities(const IdentityRules& before, const IdentityRules& after);
std::vector<std::string> lost_identities(const IdentityBasis& before, const IdentityBasis& after);

// How many credentials have an entry now that had none before, by file. A credential without an entry is an account of
// its own: what it has sent before is not found any more. Files that are new are left out.
std::map<std::string, std::size_t> added_accounts(const AccountEntries& before, const AccountEntries& after);

// One line for each rule and each file, for the store to remember. decode() is a fault for what encode() has not
// written.
std::string encode(const IdentityBasis& basis);
Result<IdentityBasis> decode_identity_basis(std::string_view text);

} // namespace oncekey
