#include <oncekey/check.h>

#include <cstdio>
#include <cstdlib>

namespace oncekey {

void check_failed(const char* condition, const char* sentence, const char* file, int line) {
  std::fprintf(stderr, "oncekey: broken invariant: %s (%s) at %s:%d\n", sentence, condition, file, line);
  std::fflush(stderr);
  std::abort();
}

} // namespace oncekey
