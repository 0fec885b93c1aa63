/* faults.h: system calls that fail on request.
 *
 * The program is linked with --wrap for each call below, so calls from the device layer (and only
 * those) pass through these functions. A plan lies in memory shared with forked processes. It names
 * the call that fails and its error, and records that it failed. Only calls of armed processes
 * count.
 */
#ifndef OPENREG_TEST_FAULTS_H
#define OPENREG_TEST_FAULTS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

/* X(function, errors): the errors that the call's manual lists; 0 ends the list. EINTR only where a
 * signal can really interrupt the call. Names are those that the linker sees, with 64 where files
 * may be large. Calls that cannot fail with valid arguments are missing: sigaction, clock_gettime,
 * unlocking. pthread_atfork is missing too: it is called once per process, and every later attempt
 * reports its failure. */
/* clang-format off */
#define FAULT_LIST(X)                       \
  X(mmap64, ENOMEM, 0)                      \
  X(munmap, ENOMEM, 0)                      \
  X(madvise, ENOMEM, EINVAL)                \
  X(memfd_create, EMFILE, ENOSYS)           \
  X(ftruncate64, ENOSPC, EINVAL)            \
  X(fallocate64, EOPNOTSUPP, ENOSPC)        \
  X(posix_fallocate64, ENOSPC, EINTR)       \
  X(pwrite64, ENOSPC, EIO)                  \
  X(pread64, EIO, ENOMEM)                   \
  X(read, EIO, EINTR)                       \
  X(fcntl64, ENOLCK, EINTR)                 \
  X(open64, EMFILE, EACCES)                 \
  X(openat64, EMFILE, EACCES)               \
  X(close, EIO, EINTR)                      \
  X(fstat64, ENOMEM, 0)                     \
  X(lstat64, ENOMEM, EACCES)                \
  X(fchmod, EIO, 0)                         \
  X(linkat, ENOSPC, EACCES)                 \
  X(mkdir, ENOSPC, EACCES)                  \
  X(unlink, EACCES, 0)                      \
  X(scandir64, EMFILE, ENOMEM)              \
  X(getrandom, ENOSYS, 0)                   \
  X(eventfd, EMFILE, 0)                     \
  X(poll, EINTR, ENOMEM)                    \
  X(syscall, EINTR, EAGAIN)                 \
  X(malloc, ENOMEM, 0)                      \
  X(calloc, ENOMEM, 0)                      \
  X(realloc, ENOMEM, 0)                     \
  X(aligned_alloc, ENOMEM, 0)               \
  X(pthread_create, EAGAIN, 0)              \
  X(sched_getaffinity, EINVAL, 0)           \
  X(setpriority, EACCES, 0)                 \
  X(hwloc_topology_init, ENOMEM, 0)         \
  X(hwloc_topology_load, EINVAL, 0)         \
  X(hwloc_bitmap_alloc, ENOMEM, 0)          \
  X(hwloc_bitmap_dup, ENOMEM, 0)            \
  X(hwloc_get_cpubind, ENOSYS, 0)           \
  X(hwloc_set_cpubind, EXDEV, 0)            \
  X(hwloc_set_area_membind, EPERM, ENOSYS)
/* clang-format on */

enum fault {
#define X(function, ...) FAULT_##function,
  FAULT_LIST(X)
#undef X
      FAULT_KINDS
};

typedef struct fault_plan {
  enum fault kind;
  int error;
  int call;         /* the first call is 0 */
  atomic_int calls; /* number of calls of this kind so far */
  atomic_bool struck;
} fault_plan;

extern fault_plan *fault_current; /* shared with processes that are forked later */
extern atomic_bool fault_armed;   /* of this process, and of children forked while it is set */
void fault_prepare(void);

const char *fault_name(enum fault kind);

/* The possible errors of a kind, by index; 0 past the last. */
int fault_error(enum fault kind, int number);

#endif
