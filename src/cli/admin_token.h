// admin_token: where the token of a gateway's admin listener is kept when the configuration names none.
//
// The first start writes one to a file that only the gateway's user (and root) can read; the commands that talk to the
// gateway find it in the same place. Being able to read the file is what makes a person an operator.
#pragma once

#include "base/log.h"
#include "config/config.h"

#include <oncekey/result.h>

namespace oncekey {

// `admin-token` in an embedded store's folder; in the user's state folder for the other stores. Empty if there is no
// such folder, because neither XDG_STATE_HOME nor HOME is set.
std::string admin_token_file(std::string_view store_url);

// The token in the file, made there if it is missing.
Result<std::string> load_or_make_admin_token(const std::string& file);

// The token in the file; empty if there is no file.
Result<std::string> load_admin_token(const std::string& file);

// A new one: 64 hexadecimal digits.
std::string new_admin_token();

// For a gateway that starts: a configuration without a token gets that of the file, which the first start makes. Where
// the file cannot be made or read, a token that no operator knows, and a warning: requests are served all the same.
Status find_admin_token(Config& config, Log& log);

} // namespace oncekey
