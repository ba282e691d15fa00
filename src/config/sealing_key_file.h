// sealing_key_file: the file that encryption_key_file names, read and checked.
#pragma once

#include "core/sealing.h"

#include <oncekey/result.h>

#include <memory>
#include <string>

namespace oncekey {

// The file must be the user's own, and for no other user to read. core/sealing.h has its lines.
Result<std::unique_ptr<const SealingKeys>> load_sealing_keys(const std::string& path);

} // namespace oncekey
