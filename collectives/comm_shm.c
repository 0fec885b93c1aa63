/* comm_shm.c: the layout of a control segment, and how processes find and map one. */
#define _GNU_SOURCE /* F_GET_SEALS */
#include "collectives/comm_shm.h"

#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/comm_shm_file.h"

/* "ORCOLL2". Its last digit changes with the layout of the segment. */
static const uint64_t magic_value = 0x324C4C4F43524F;

/* ---- layout ---------------------------------------------------------------------------------- */

/* Parts begin at a page, so that those that nobody uses take no memory. All ranks run on one
 * machine, so they have the same page size and the same layout. */
static size_t round_up(size_t bytes) {
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

static struct openreg_comm_shm_layout make_layout(size_t size) {
  struct openreg_comm_shm_layout layout;
  layout.calls = round_up(sizeof(struct openreg_comm_shm) + size * sizeof(struct openreg_member));
  layout.chunks = round_up(layout.calls + 2 * size * sizeof(struct openreg_published_call));
  layout.inline_inputs =
      round_up(layout.chunks + 2 * size * size * sizeof(struct openreg_published_chunk));
  layout.mailboxes = layout.inline_inputs + 2 * size * OPENREG_INLINE_INPUT_BYTES;
  layout.end = round_up(layout.mailboxes + size * size * sizeof(struct openreg_mailbox));
  return layout;
}

static void *at(struct openreg_comm_shm *shm, size_t offset) {
  return (unsigned char *)shm + offset;
}

static size_t buffer_of(int rank, uint64_t number) {
  return 2 * (size_t)rank + number % 2;
}

struct openreg_published_call *openreg_comm_shm_call(struct openreg_comm_shm *shm, int rank,
                                                     uint64_t number) {
  struct openreg_published_call *calls = at(shm, shm->layout.calls);
  return &calls[buffer_of(rank, number)];
}

struct openreg_published_chunk *openreg_comm_shm_chunks(struct openreg_comm_shm *shm, int rank,
                                                        uint64_t number) {
  struct openreg_published_chunk *chunks = at(shm, shm->layout.chunks);
  return &chunks[buffer_of(rank, number) * shm->size];
}

unsigned char *openreg_comm_shm_inline_input(struct openreg_comm_shm *shm, int rank,
                                             uint64_t number) {
  unsigned char *inputs = at(shm, shm->layout.inline_inputs);
  return inputs + buffer_of(rank, number) * OPENREG_INLINE_INPUT_BYTES;
}

struct openreg_mailbox *openreg_comm_shm_mailbox(struct openreg_comm_shm *shm, int source,
                                                 int destination) {
  struct openreg_mailbox *mailboxes = at(shm, shm->layout.mailboxes);
  return &mailboxes[(size_t)source * shm->size + (size_t)destination];
}

/* ---- creating -------------------------------------------------------------------------------- */

uint64_t openreg_comm_shm_bytes(int size) {
  return make_layout((size_t)size).end;
}

void openreg_comm_shm_init(struct openreg_comm_shm *shm, int size, uint64_t nonce) {
  shm->nonce = nonce;
  shm->layout = make_layout((size_t)size);
  shm->size = (uint32_t)size;
  shm->magic = magic_value;
}

void openreg_comm_shm_locator_encode(struct openreg_comm_shm_locator locator, openreg_comm_id *id) {
  locator.magic = magic_value;
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, &locator, sizeof locator);
}

_Static_assert(sizeof(struct openreg_comm_shm_locator) <= sizeof(openreg_comm_id),
               "a locator fits into an id");

bool openreg_comm_shm_locator_decode(const openreg_comm_id *id,
                                     struct openreg_comm_shm_locator *locator) {
  memcpy(locator, id->bytes, sizeof *locator);
  return locator->magic == magic_value && locator->pid > 0 && locator->file >= 0 &&
         locator->size >= 1 && locator->size <= OPENREG_MAX_RANKS;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Returns why the file is not the locator's segment, or NULL. The descriptor may refer to another
 * file by now, and the process id to another process. The seal is required because a file without
 * it could be truncated while it is mapped. */
static const char *find_fault(int file, const struct openreg_comm_shm_locator *locator) {
  const struct openreg_comm_shm_layout layout = make_layout(locator->size);
  struct stat status;
  struct openreg_comm_shm head;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_ino != locator->inode)
    return "its creator has closed it";
  int seals = fcntl(file, F_GET_SEALS);
  if (status.st_uid != geteuid() || seals < 0 || !(seals & F_SEAL_SHRINK) ||
      (uint64_t)status.st_size != layout.end || pread(file, &head, sizeof head, 0) != sizeof head ||
      head.magic != magic_value || head.nonce != locator->nonce || head.size != locator->size ||
      memcmp(&head.layout, &layout, sizeof layout) != 0)
    return "its creator's file is not the control segment of that id";
  return NULL;
}

int openreg_comm_shm_open(const struct openreg_comm_shm_locator *locator, const char **fault) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", locator->pid, locator->file);
  /* The descriptor may be a pipe or a terminal by now: opening must not wait, and must not acquire
   * a controlling terminal. */
  int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    *fault = errno == ENOENT ? "its creator has ended, has closed it, or is on another machine"
                             : openreg_proc_error(errno);
    return -1;
  }
  *fault = find_fault(file, locator);
  if (*fault == NULL)
    return file;
  close(file);
  return -1;
}

openreg_status openreg_comm_shm_map(const struct openreg_comm_shm_locator *locator,
                                    struct openreg_comm_shm **shm) {
  const char *fault;
  int file = openreg_comm_shm_open(locator, &fault);
  if (file < 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: cannot join the communicator of process %d: %s", locator->pid,
                        fault);
  size_t bytes = openreg_comm_shm_bytes((int)locator->size);
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  int error = errno;
  close(file);
  if (base == MAP_FAILED)
    return openreg_fail(OPENREG_SYSTEM, "openreg: cannot map the control segment of %zu bytes: %s",
                        bytes, strerror(error));
  /* A forked child must not use it, and a core file does not need it. */
  (void)madvise(base, bytes, MADV_DONTFORK);
  (void)madvise(base, bytes, MADV_DONTDUMP);
  *shm = base;
  return OPENREG_OK;
}

void openreg_comm_shm_unmap(struct openreg_comm_shm *shm) {
  munmap(shm, shm->layout.end);
}
