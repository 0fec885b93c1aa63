/* id.c: control segments that this process made, held open until all ranks have joined.
 *
 * The creator need not be a rank. So what all have joined is let go of by its own joining, or when
 * the next one is made.
 */
#define _GNU_SOURCE /* memfd_create */
#include "collectives/collectives.h"

#include "base/forks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/comm_shm_file.h"

struct held {
  int file;
  uint64_t nonce;
  struct held *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *first;

static void let_go(struct held **link) {
  struct held *held = *link;
  *link = held->next;
  close(held->file);
  free(held);
}

/* ---- forks ----------------------------------------------------------------------------------- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* An id names the process that made it. */
static void after_fork_in_child(void) {
  while (first != NULL)
    let_go(&first);
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_watch fork_watch =
    OPENREG_FORK_WATCH(before_fork, after_fork_in_parent, after_fork_in_child);

/* ---- making ---------------------------------------------------------------------------------- */

static bool have_all_joined(int file) {
  uint32_t size, joined;
  return pread(file, &size, sizeof size, offsetof(struct openreg_segment, size)) == sizeof size &&
         pread(file, &joined, sizeof joined, offsetof(struct openreg_segment, joined)) ==
             sizeof joined &&
         joined == size;
}

static void let_go_of_joined(void) {
  for (struct held **link = &first; *link != NULL;) {
    if (have_all_joined((*link)->file))
      let_go(link);
    else
      link = &(*link)->next;
  }
}

static bool fill(int file, int size, uint64_t nonce) {
  uint64_t bytes = openreg_segment_bytes(size);
  if (ftruncate(file, (off_t)bytes) != 0 ||
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return false;
  struct openreg_segment head;
  memset(&head, 0, sizeof head);
  openreg_segment_begin(&head, size, nonce);
  return pwrite(file, &head, sizeof head, 0) == sizeof head;
}

static openreg_status make(int size, struct held *held, struct openreg_segment_name *name) {
  struct stat status;
  uint64_t nonce = 0;
  held->file = memfd_create("openreg-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (held->file < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: making a control segment: %s", strerror(errno));
  if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce || !fill(held->file, size, nonce) ||
      fstat(held->file, &status) != 0) {
    int error = errno;
    close(held->file);
    return openreg_fail(OPENREG_SYSTEM, "openreg: making a control segment for %d ranks: %s", size,
                        strerror(error));
  }
  held->nonce = nonce;
  *name = (struct openreg_segment_name){.pid = getpid(),
                                        .file = held->file,
                                        .inode = status.st_ino,
                                        .nonce = nonce,
                                        .size = (uint32_t)size};
  return OPENREG_OK;
}

openreg_status openreg_comm_id_create(int size, openreg_comm_id *id) {
  if (size < 1 || size > OPENREG_MAX_RANKS)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: a communicator of %d ranks: expected 1 to %d", size,
                        OPENREG_MAX_RANKS);
  openreg_status status = openreg_forks_watch(&fork_watch);
  if (status != OPENREG_OK)
    return status;
  struct held *held = malloc(sizeof *held);
  if (held == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a communicator's id");
  struct openreg_segment_name name;
  pthread_mutex_lock(&lock);
  let_go_of_joined();
  status = make(size, held, &name);
  if (status == OPENREG_OK) {
    held->next = first;
    first = held;
  }
  pthread_mutex_unlock(&lock);
  if (status != OPENREG_OK) {
    free(held);
    return status;
  }
  openreg_segment_name_write(name, id);
  return OPENREG_OK;
}

void openreg_comm_id_drop(const openreg_comm_id *id) {
  struct openreg_segment_name name;
  if (!openreg_segment_name_read(id, &name) || name.pid != getpid())
    return;
  pthread_mutex_lock(&lock);
  for (struct held **link = &first; *link != NULL; link = &(*link)->next) {
    if ((*link)->nonce == name.nonce) {
      let_go(link);
      break;
    }
  }
  pthread_mutex_unlock(&lock);
}

bool openreg_comm_id_is_reachable(const openreg_comm_id *id) {
  struct openreg_segment_name name;
  const char *fault;
  if (!openreg_segment_name_read(id, &name))
    return false;
  int file = openreg_segment_open(&name, &fault);
  if (file < 0)
    return false;
  close(file);
  return true;
}
