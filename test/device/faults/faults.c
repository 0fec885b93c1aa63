/* Injects faults into system calls. See faults.h. */
#define _GNU_SOURCE
#include "faults.h"
#include "child.h"

#include <dirent.h>
#include <fcntl.h>
#include <hwloc.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

fault_plan *fault_current;
atomic_bool fault_armed;

void fault_prepare(void) {
  int protection = PROT_READ | PROT_WRITE;
  fault_current = mmap(NULL, sizeof *fault_current, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(fault_current, MAP_FAILED);
}

const char *fault_name(enum fault kind) {
  static const char *const names[] = {
#define X(function, ...) #function,
      FAULT_LIST(X)
#undef X
  };
  return names[kind];
}

int fault_error(enum fault kind, int number) {
  static const int errors[][3] = {
#define X(function, ...) {__VA_ARGS__, 0},
      FAULT_LIST(X)
#undef X
  };
  return number < 3 ? errors[kind][number] : 0;
}

static bool strikes(enum fault kind) {
  fault_plan *plan = fault_current;
  if (plan == NULL || !atomic_load(&fault_armed) || plan->kind != kind ||
      atomic_fetch_add(&plan->calls, 1) != plan->call)
    return false;
  atomic_store(&plan->struck, true);
  errno = plan->error;
  return true;
}

#define DECLARE(result, name, parameters)                                                          \
  result __real_##name parameters;                                                                 \
  result __wrap_##name parameters;
#define WRAP(result, name, parameters, arguments, failure)                                         \
  DECLARE(result, name, parameters)                                                                \
  result __wrap_##name parameters {                                                                \
    return strikes(FAULT_##name) ? (failure) : __real_##name arguments;                            \
  }

typedef struct stat stat_of;

WRAP(void *, mmap64,
     (void *address, size_t bytes, int protection, int flags, int file, off_t offset),
     (address, bytes, protection, flags, file, offset), MAP_FAILED)
WRAP(int, munmap, (void *address, size_t bytes), (address, bytes), -1)
WRAP(int, madvise, (void *address, size_t bytes, int advice), (address, bytes, advice), -1)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1)
WRAP(int, ftruncate64, (int file, off_t bytes), (file, bytes), -1)
WRAP(int, fallocate64, (int file, int mode, off_t offset, off_t bytes), (file, mode, offset, bytes),
     -1)
WRAP(int, posix_fallocate64, (int file, off_t offset, off_t bytes), (file, offset, bytes), errno)
WRAP(ssize_t, pwrite64, (int file, const void *from, size_t bytes, off_t offset),
     (file, from, bytes, offset), -1)
WRAP(ssize_t, pread64, (int file, void *to, size_t bytes, off_t offset), (file, to, bytes, offset),
     -1)
WRAP(ssize_t, read, (int file, void *to, size_t bytes), (file, to, bytes), -1)
WRAP(int, fstat64, (int file, stat_of *status), (file, status), -1)
WRAP(int, lstat64, (const char *path, stat_of *status), (path, status), -1)
WRAP(int, fchmod, (int file, mode_t mode), (file, mode), -1)
WRAP(int, linkat, (int from, const char *old, int to, const char *new, int flags),
     (from, old, to, new, flags), -1)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1)
WRAP(int, unlink, (const char *path), (path), -1)
WRAP(int, scandir64,
     (const char *path, struct dirent ***entries, int (*wanted)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     (path, entries, wanted, compare), -1)
WRAP(ssize_t, getrandom, (void *to, size_t bytes, unsigned flags), (to, bytes, flags), -1)
WRAP(int, eventfd, (unsigned count, int flags), (count, flags), -1)
WRAP(int, poll, (struct pollfd * files, nfds_t count, int timeout), (files, count, timeout), -1)
WRAP(void *, malloc, (size_t bytes), (bytes), NULL)
WRAP(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL)
WRAP(void *, realloc, (void *old, size_t bytes), (old, bytes), NULL)
WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes), NULL)
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument),
     (thread, attributes, body, argument), errno)
WRAP(int, sched_getaffinity, (pid_t process, size_t bytes, cpu_set_t *cores),
     (process, bytes, cores), -1)
WRAP(int, setpriority, (__priority_which_t which, id_t who, int nice), (which, who, nice), -1)
WRAP(int, hwloc_topology_init, (hwloc_topology_t * topology), (topology), -1)
WRAP(int, hwloc_topology_load, (hwloc_topology_t topology), (topology), -1)
WRAP(hwloc_bitmap_t, hwloc_bitmap_alloc, (void), (), NULL)
WRAP(hwloc_bitmap_t, hwloc_bitmap_dup, (hwloc_const_bitmap_t bitmap), (bitmap), NULL)
WRAP(int, hwloc_get_cpubind, (hwloc_topology_t topology, hwloc_cpuset_t cores, int flags),
     (topology, cores, flags), -1)
WRAP(int, hwloc_set_cpubind, (hwloc_topology_t topology, hwloc_const_cpuset_t cores, int flags),
     (topology, cores, flags), -1)
WRAP(int, hwloc_set_area_membind,
     (hwloc_topology_t topology, const void *address, size_t bytes, hwloc_const_bitmap_t nodes,
      hwloc_membind_policy_t policy, int flags),
     (topology, address, bytes, nodes, policy, flags), -1)

/* The descriptor is closed even if close fails: close(2). */
DECLARE(int, close, (int file))
int __wrap_close(int file) {
  int error = strikes(FAULT_close) ? errno : 0;
  int result = __real_close(file);
  if (error == 0)
    return result;
  errno = error;
  return -1;
}

DECLARE(int, open64, (const char *path, int flags, mode_t mode))
int __wrap_open64(const char *path, int flags, mode_t mode) {
  return strikes(FAULT_open64) ? -1 : __real_open64(path, flags, mode);
}

DECLARE(int, openat64, (int folder, const char *path, int flags, mode_t mode))
int __wrap_openat64(int folder, const char *path, int flags, mode_t mode) {
  return strikes(FAULT_openat64) ? -1 : __real_openat64(folder, path, flags, mode);
}

static bool locks(int command, const void *argument) {
  return (command == F_OFD_SETLK || command == F_OFD_SETLKW) &&
         ((const struct flock *)argument)->l_type != F_UNLCK;
}

/* Only waiting for a lock can be interrupted. Releasing a lock cannot fail. */
static bool fcntl_may_fail(int command, const void *argument) {
  if (fault_current->error == EINTR)
    return command == F_OFD_SETLKW && locks(command, argument);
  return locks(command, argument) || (command != F_OFD_SETLK && command != F_OFD_SETLKW);
}

DECLARE(int, fcntl64, (int file, int command, void *argument))
int __wrap_fcntl64(int file, int command, void *argument) {
  return fcntl_may_fail(command, argument) && strikes(FAULT_fcntl64)
             ? -1
             : __real_fcntl64(file, command, argument);
}

/* A wake-up cannot fail. A wait may end spuriously. */
DECLARE(long, syscall, (long number, long a, long b, long c, long d, long e, long f))
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  bool is_wake_up = number == SYS_futex && ((b & FUTEX_CMD_MASK) == FUTEX_WAKE ||
                                            (b & FUTEX_CMD_MASK) == FUTEX_WAKE_BITSET);
  return !is_wake_up && strikes(FAULT_syscall) ? -1 : __real_syscall(number, a, b, c, d, e, f);
}
