#include "base/core_dumps.h"

#include <sys/prctl.h>
#include <sys/resource.h>

namespace oncekey {

void forbid_core_dumps() {
  // Two locks: PR_SET_DUMPABLE also stops handlers that the kernel pipes a dump to, for which the limit does not count.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  rlimit limit{};
  if (::getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = 0; // the hard limit stays: allow_core_dumps() goes by it
  ::setrlimit(RLIMIT_CORE, &limit);
}

void allow_core_dumps() {
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  rlimit limit{};
  if (::getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_CORE, &limit);
}

} // namespace oncekey
