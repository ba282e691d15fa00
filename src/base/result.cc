#include "base/enum_name.h"

#include <oncekey/result.h>

#include <cstdio>
#include <cstdlib>

namespace oncekey {

std::string_view to_string(FaultKind kind) { return enum_name(kind); }

void check_failed(const char* condition, const char* sentence, const char* file, int line) {
  std::fprintf(stderr, "oncekey: broken invariant: %s (%s) at %s:%d\n", sentence, condition, file, line);
  std::fflush(stderr);
  std::abort();
}

} // namespace oncekey
