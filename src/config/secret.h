// secret: settings that may be kept elsewhere. A token or password in a file or in the environment stays out of the
// configuration, which people commit and paste, and off the command line, which every user of the machine can see.
#pragma once

#include <oncekey/result.h>

#include <string>
#include <string_view>

namespace oncekey {

// "env:NAME" is the variable's value, "file:PATH" the file's first line, anything else itself.
Result<std::string> resolve_secret(std::string_view text);
// Only "env:NAME" and "file:PATH"; anything else is a fault, so that a misspelled "env:" does not become the secret.
Result<std::string> secret_kept_elsewhere(std::string_view text);

} // namespace oncekey
