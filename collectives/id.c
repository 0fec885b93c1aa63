/* id.c: the control segments that this process created and holds open until all ranks have joined.
 *
 * The creator need not be a rank. So a segment that all ranks have joined is closed when the
 * creator itself joins it, or when it creates the next one.
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

static void close_held(struct held **link) {
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

/* An id names the process that created it, so the child drops the parent's segments. */
static void after_fork_in_child(void) {
  while (first != NULL)
    close_held(&first);
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_handlers fork_watch =
    OPENREG_FORK_HANDLERS(before_fork, after_fork_in_parent, after_fork_in_child);

/* ---- creating -------------------------------------------------------------------------------- */

static bool have_all_joined(int file) {
  uint32_t size, joined;
  return pread(file, &size, sizeof size, offsetof(struct openreg_comm_shm, size)) == sizeof size &&
         pread(file, &joined, sizeof joined, offsetof(struct openreg_comm_shm, joined_count)) ==
             sizeof joined &&
         joined == size;
}

static void close_fully_joined(void) {
  for (struct held **link = &first; *link != NULL;) {
    if (have_all_joined((*link)->file))
      close_held(link);
    else
      link = &(*link)->next;
  }
}

static bool init_file(int file, int size, uint64_t nonce) {
  uint64_t bytes = openreg_comm_shm_bytes(size);
  if (ftruncate(file, (off_t)bytes) != 0 ||
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return false;
  struct openreg_comm_shm head;
  memset(&head, 0, sizeof head);
  openreg_comm_shm_init(&head, size, nonce);
  return pwrite(file, &head, sizeof head, 0) == sizeof head;
}

static openreg_status make(int size, struct held *held, struct openreg_comm_shm_locator *locator) {
  struct stat status;
  uint64_t nonce = 0;
  held->file = memfd_create("openreg-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (held->file < 0)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot create a control segment: %s",
                        strerror(errno));
  if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce || !init_file(held->file, size, nonce) ||
      fstat(held->file, &status) != 0) {
    int error = errno;
    close(held->file);
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot create a control segment for %d ranks: %s",
                        size, strerror(error));
  }
  held->nonce = nonce;
  *locator = (struct openreg_comm_shm_locator){.pid = getpid(),
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
  openreg_status status = openreg_forks_register(&fork_watch);
  if (status != OPENREG_OK)
    return status;
  struct held *held = malloc(sizeof *held);
  if (held == NULL)
    return openreg_fail(OPENREG_OUT_OF_MEMORY,
                        "openreg: out of host memory for a communicator's id");
  struct openreg_comm_shm_locator locator;
  pthread_mutex_lock(&lock);
  close_fully_joined();
  status = make(size, held, &locator);
  if (status == OPENREG_OK) {
    held->next = first;
    first = held;
  }
  pthread_mutex_unlock(&lock);
  if (status != OPENREG_OK) {
    free(held);
    return status;
  }
  openreg_comm_shm_locator_encode(locator, id);
  return OPENREG_OK;
}

void openreg_comm_id_drop(const openreg_comm_id *id) {
  struct openreg_comm_shm_locator locator;
  if (!openreg_comm_shm_locator_decode(id, &locator) || locator.pid != getpid())
    return;
  pthread_mutex_lock(&lock);
  for (struct held **link = &first; *link != NULL; link = &(*link)->next) {
    if ((*link)->nonce == locator.nonce) {
      close_held(link);
      break;
    }
  }
  pthread_mutex_unlock(&lock);
}

bool openreg_comm_id_is_reachable(const openreg_comm_id *id) {
  struct openreg_comm_shm_locator locator;
  const char *fault;
  if (!openreg_comm_shm_locator_decode(id, &locator))
    return false;
  int file = openreg_comm_shm_open(&locator, &fault);
  if (file < 0)
    return false;
  close(file);
  return true;
}
