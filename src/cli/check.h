// check: `oncekey check FILE`, which says whether `oncekey serve --config FILE` would start and what it would do.
#pragma once

#include <iosfwd>
#include <string>

namespace oncekey {

// Findings go to `err`, one a line, and give exit code 1. A good file gives 0: warnings go to `err`, the verdict and a
// table of the routes with the policy each really follows go to `out`.
int run_check(const std::string& path, std::ostream& out, std::ostream& err);
// The same on standard output and standard error.
int run_check(const std::string& path);

} // namespace oncekey
