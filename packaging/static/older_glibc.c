/* Functions that Debian 12's archives call and that glibc has only since 2.36, for machines with 2.35 (Ubuntu 22.04). A
 * definition in the program is taken before that of the C library. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* libstdc++: std::random_device. So few bytes are never cut short. */
uint32_t arc4random(void) {
  uint32_t number;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) abort();
  }
  return number;
}
