#include "config/identity_files.h"

#include "base/faults.h"

#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace oncekey {
namespace {

// A hundred thousand credentials fit.
constexpr std::size_t kLargestAccountsFile = 16u << 20;
constexpr std::size_t kLargestJwksFile = 1u << 20;
constexpr std::string_view kFilePrefix = "file:";

Fault named(const std::string& path, const Fault& fault) { return invalid("{}: {}", path, fault.message); }

} // namespace

Result<std::string> read_whole(const std::string& path, std::size_t largest, std::string_view if_larger) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(largest + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return invalid("cannot be read: {}", errno != 0 ? std::strerror(errno) : "input error");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > largest) return invalid("larger than {} MiB{}", largest >> 20, if_larger);
  return text;
}

Result<Accounts> parse_accounts(std::string_view text, const std::string& file_name) {
  toml::table table;
  try {
    table = toml::parse(text, file_name);
  } catch (const toml::parse_error& error) {
    return invalid("{}:{}: not valid TOML: {}", file_name, error.source().begin.line, error.description());
  }
  Accounts accounts;
  for (const auto& [key, value] : table) {
    const auto* const account = value.as_string();
    const Status added =
        account == nullptr
            ? Status(invalid(
                  "expected the credential in quotes and the name of its account, as in \"sha256:HEX\" = \"acme\""))
            : accounts.add(key.str(), account->get());
    // The message does not hold the credential, which may stand in the file in plain text.
    if (!added) return invalid("{}:{}: {}", file_name, key.source().begin.line, added.fault().message);
  }
  return accounts;
}

Result<Accounts> load_accounts(const std::string& path) {
  const auto text = read_whole(path, kLargestAccountsFile);
  if (!text) return named(path, text.fault());
  return parse_accounts(*text, path);
}

Result<JwkSet> load_jwks(const std::string& path) {
  const auto text = read_whole(path, kLargestJwksFile);
  if (!text) return named(path, text.fault());
  auto set = parse_jwks(*text, SecretKeys::allowed);
  if (!set) return named(path, set.fault());
  if (!set->rejected.empty()) return named(path, invalid(set->rejected.front()));
  return set;
}

std::string jwks_path(const std::string& jwt_keys) {
  return jwt_keys.starts_with(kFilePrefix) ? jwt_keys.substr(kFilePrefix.size()) : std::string();
}

} // namespace oncekey
