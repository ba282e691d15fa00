/* machine_faults: a disk whose sync fails, a name server that is silent and clocks that are wrong, for tests of the
 * built program.
 *
 * Loaded with LD_PRELOAD. From the moment the file named by ONCEKEY_FAIL_SYNC exists, writes of the store's log answer
 * EIO, once and for ever, as a disk that went bad does. With ONCEKEY_NO_IO_URING the kernel seems to forbid io_uring, as
 * it does in many containers. With ONCEKEY_SYNCS_LIE the writer thread's writes stay in the page cache, where a power
 * cut takes them away. With ONCEKEY_SHORT_WRITES each of them ends after one block.
 * While the file named by ONCEKEY_STALL_AUDIT exists, and half a minute at most, writes to an audit log do not return.
 * Until the file named by ONCEKEY_END_LOOKUPS exists, and half a minute at most, getaddrinfo does not return. With
 * ONCEKEY_NO_SUCH_NAME it says that no name exists.
 * ONCEKEY_BOOT_ID names a file to be read in place of the kernel's boot id, ONCEKEY_WALL_AHEAD_SECONDS puts the wall
 * clock forward, and ONCEKEY_SYNCHRONISED (0 or 1) is what the kernel says about it. With ONCEKEY_KILL_AT_EXIT the
 * process is killed when main has returned, before its exit code is known.
 * With ONCEKEY_KILL_BEFORE_MESSAGE (or _AFTER_) the process is killed before (after) it sends a message that begins so
 * to another gateway. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int log_fails(void) {
  const char* trigger = getenv("ONCEKEY_FAIL_SYNC");
  return trigger != NULL && access(trigger, F_OK) == 0;
}

static int is_called(int fd, const char* end) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  const ssize_t wanted = (ssize_t)strlen(end);
  return length >= wanted && memcmp(path + length - wanted, end, (size_t)wanted) == 0;
}

/* The client's key journal, a file whose name ends in ".log", is synced with these. */
static int sync_or_fail(long call, int fd) {
  if (log_fails() && is_called(fd, ".log")) {
    errno = EIO;
    return -1;
  }
  return (int)syscall(call, fd);
}
int fsync(int fd) { return sync_or_fail(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_or_fail(SYS_fdatasync, fd); }

ssize_t write(int fd, const void* bytes, size_t count) {
  const char* stalls = getenv("ONCEKEY_STALL_AUDIT");
  for (int i = 0; stalls != NULL && access(stalls, F_OK) == 0 && is_called(fd, "audit.log") && i < 600; ++i)
    usleep(50000);
  return syscall(SYS_write, fd, bytes, count);
}

/* The writer thread's way; nothing else in the process writes like this. */
ssize_t pwritev2(int fd, const struct iovec* parts, int count, off_t offset, int flags) {
  if (log_fails()) {
    errno = EIO;
    return -1;
  }
  ssize_t (*real)(int, const struct iovec*, int, off_t, int);
  *(void**)&real = dlsym(RTLD_NEXT, "pwritev2");
  if (getenv("ONCEKEY_SYNCS_LIE") != NULL) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
    flags &= ~RWF_DSYNC;
  }
  struct iovec part = *parts;
  if (getenv("ONCEKEY_SHORT_WRITES") != NULL && part.iov_len > 4096) {
    part.iov_len = 4096;
    return real(fd, &part, 1, offset, flags);
  }
  return real(fd, parts, count, offset, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec* parts, int count, off64_t offset, int flags) {
  return pwritev2(fd, parts, count, offset, flags);
}

static int is_message(const struct msghdr* message, const char* variable) {
  const char* begin = getenv(variable);
  return begin != NULL && message->msg_iovlen > 0 && message->msg_iov[0].iov_len >= strlen(begin) &&
         memcmp(message->msg_iov[0].iov_base, begin, strlen(begin)) == 0;
}
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  if (is_message(message, "ONCEKEY_KILL_BEFORE_MESSAGE")) kill(getpid(), SIGKILL);
  const ssize_t sent = (ssize_t)syscall(SYS_sendmsg, fd, message, flags);
  if (is_message(message, "ONCEKEY_KILL_AFTER_MESSAGE")) kill(getpid(), SIGKILL);
  return sent;
}

/* The way of io_uring. */
int io_uring_submit(void* ring) {
  if (log_fails()) return -EIO;
  int (*real)(void*);
  *(void**)&real = dlsym(RTLD_NEXT, "io_uring_submit");
  return real(ring);
}
int io_uring_queue_init(unsigned entries, void* ring, unsigned flags) {
  if (getenv("ONCEKEY_NO_IO_URING") != NULL) return -EPERM;
  int (*real)(unsigned, void*, unsigned);
  *(void**)&real = dlsym(RTLD_NEXT, "io_uring_queue_init");
  return real(entries, ring, flags);
}

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
