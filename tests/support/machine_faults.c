/* machine_faults: a disk whose sync fails, a name server that is silent and clocks that are wrong, for tests of the
 * built program.
 *
 * Loaded with LD_PRELOAD. From the moment the file named by ONCEKEY_FAIL_SYNC exists, fsync and fdatasync of files
 * whose name ends in ".log" (RocksDB's write-ahead logs) answer EIO, once and for ever, as a disk that went bad does.
 * Until the file named by ONCEKEY_END_LOOKUPS exists, and half a minute at most, getaddrinfo does not return. With
 * ONCEKEY_NO_SUCH_NAME it says that no name exists.
 * ONCEKEY_BOOT_ID names a file to be read in place of the kernel's boot id, ONCEKEY_WALL_AHEAD_SECONDS puts the wall
 * clock forward, and ONCEKEY_SYNCHRONISED (0 or 1) is what the kernel says about it. With ONCEKEY_KILL_AT_EXIT the
 * process is killed when main has returned, before its exit code is known. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static int must_fail(int fd) {
  const char* trigger = getenv("ONCEKEY_FAIL_SYNC");
  if (trigger == NULL || access(trigger, F_OK) != 0) return 0;
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 4) return 0;
  path[length] = '\0';
  return strcmp(path + length - 4, ".log") == 0;
}

static int sync_or_fail(const char* name, int fd) {
  if (must_fail(fd)) {
    errno = EIO;
    return -1;
  }
  int (*real)(int);
  *(void**)&real = dlsym(RTLD_NEXT, name);
  return real(fd);
}

int fsync(int fd) { return sync_or_fail("fsync", fd); }
int fdatasync(int fd) { return sync_or_fail("fdatasync", fd); }

int getaddrinfo(const char* node, const char* service, const struct addrinfo* hints, struct addrinfo** found) {
  const char* end = getenv("ONCEKEY_END_LOOKUPS");
  for (int i = 0; end != NULL && access(end, F_OK) != 0 && i < 600; ++i) usleep(50000);
  if (getenv("ONCEKEY_NO_SUCH_NAME") != NULL) return EAI_NONAME;
  int (*real)(const char*, const char*, const struct addrinfo*, struct addrinfo**);
  *(void**)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  return real(node, service, hints, found);
}

int clock_gettime(clockid_t id, struct timespec* time) {
  const long result = syscall(SYS_clock_gettime, id, time);
  const char* ahead = getenv("ONCEKEY_WALL_AHEAD_SECONDS");
  if (result == 0 && id == CLOCK_REALTIME && ahead != NULL) time->tv_sec += atol(ahead);
  return (int)result;
}

int adjtimex(struct timex* clock) {
  const char* synchronised = getenv("ONCEKEY_SYNCHRONISED");
  const long result = syscall(SYS_adjtimex, clock);
  if (synchronised == NULL) return (int)result;
  clock->status = *synchronised == '1' ? 0 : STA_UNSYNC;
  return *synchronised == '1' ? TIME_OK : TIME_ERROR;
}

static const char* file_to_open(const char* path) {
  const char* boot_id = getenv("ONCEKEY_BOOT_ID");
  return boot_id != NULL && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? boot_id : path;
}

FILE* fopen(const char* path, const char* mode) {
  FILE* (*real)(const char*, const char*);
  *(void**)&real = dlsym(RTLD_NEXT, "fopen");
  return real(file_to_open(path), mode);
}

FILE* fopen64(const char* path, const char* mode) {
  FILE* (*real)(const char*, const char*);
  *(void**)&real = dlsym(RTLD_NEXT, "fopen64");
  return real(file_to_open(path), mode);
}

__attribute__((destructor)) static void kill_at_exit(void) {
  if (getenv("ONCEKEY_KILL_AT_EXIT") != NULL) raise(SIGKILL);
}
