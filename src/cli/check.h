// check: `oncekey check FILE`, which says whether `oncekey serve --config FILE` would start and what it would do.
//
// It reads the file and the files it names (certificates, keys, accounts, key sets) and looks at the store's folder. It
// does not bind, lock or connect, and makes nothing: that is `oncekey doctor` (doctor.h).
#pragma once

#include <iosfwd>
#include <string>

namespace oncekey {

enum class CheckOutput { text, json };

// 0 for a file that can be used, 1 with every mistake on `err`.
int run_check(const std::string& path, CheckOutput output, std::ostream& out, std::ostream& err);
int run_check(const std::string& path, CheckOutput output);

} // namespace oncekey
