// identity_files: the files a route names to tell callers apart, read and checked.
#pragma once

#include "config/config.h"
#include "core/accounts.h"
#include "core/jwt.h"

#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

// The text of a file; a fault, without the path, where it cannot be read or is larger.
Result<std::string> read_whole(const std::string& path, std::size_t largest, std::string_view if_larger = "");

// TOML, one line a credential: "sha256:HEX" = "account", or the credential itself in the place of its hash.
Result<Accounts> parse_accounts(std::string_view text, const std::string& file_name);
Result<Accounts> load_accounts(const std::string& path);

// A key that cannot be used makes the whole file wrong: it was put there by hand.
Result<JwkSet> load_jwks(const std::string& path);

// The path of jwt_keys = "file:PATH"; empty for a URL.
std::string jwks_path(const std::string& jwt_keys);

} // namespace oncekey
