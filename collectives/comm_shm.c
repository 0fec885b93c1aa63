/* segment.c: where things lie in a control segment, and how it is found. See segment.h. */
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

static const uint64_t magic_value = 0x314C4C4F43524F; /* "OPENREG" would be that of others */

enum { PAGE = 4096 };

/* ---- layout ---------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes) {
  return (bytes + PAGE - 1) / PAGE * PAGE;
}

struct layout {
  size_t calls, parts, slots, mailboxes, end; /* where they begin */
};

static struct layout lay_out(size_t size) {
  struct layout layout;
  layout.calls = round_up(sizeof(struct openreg_segment) + size * sizeof(struct openreg_member));
  layout.parts = round_up(layout.calls + 2 * size * sizeof(struct openreg_published));
  layout.slots = round_up(layout.parts + 2 * size * size * sizeof(struct openreg_published_part));
  layout.mailboxes = layout.slots + 2 * size * OPENREG_SLOT_BYTES;
  layout.end = round_up(layout.mailboxes + size * size * sizeof(struct openreg_mailbox));
  return layout;
}

static void *at(struct openreg_segment *segment, size_t offset) {
  return (unsigned char *)segment + offset;
}

static size_t buffer_of(int rank, uint64_t number) {
  return 2 * (size_t)rank + number % 2;
}

struct openreg_published *openreg_segment_call(struct openreg_segment *segment, int rank,
                                               uint64_t number) {
  struct openreg_published *calls = at(segment, lay_out(segment->size).calls);
  return &calls[buffer_of(rank, number)];
}

struct openreg_published_part *openreg_segment_parts(struct openreg_segment *segment, int rank,
                                                     uint64_t number) {
  struct openreg_published_part *parts = at(segment, lay_out(segment->size).parts);
  return &parts[buffer_of(rank, number) * segment->size];
}

unsigned char *openreg_segment_slot(struct openreg_segment *segment, int rank, uint64_t number) {
  unsigned char *slots = at(segment, lay_out(segment->size).slots);
  return slots + buffer_of(rank, number) * OPENREG_SLOT_BYTES;
}

struct openreg_mailbox *openreg_segment_mailbox(struct openreg_segment *segment, int source,
                                                int destination) {
  struct openreg_mailbox *mailboxes = at(segment, lay_out(segment->size).mailboxes);
  return &mailboxes[(size_t)source * segment->size + (size_t)destination];
}

/* ---- making one ------------------------------------------------------------------------------ */

uint64_t openreg_segment_bytes(int size) {
  return lay_out((size_t)size).end;
}

void openreg_segment_begin(struct openreg_segment *segment, int size, uint64_t nonce) {
  segment->nonce = nonce;
  segment->bytes = openreg_segment_bytes(size);
  segment->size = (uint32_t)size;
  segment->magic = magic_value;
}

void openreg_segment_name_write(struct openreg_segment_name name, openreg_comm_id *id) {
  name.magic = magic_value;
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, &name, sizeof name);
}

_Static_assert(sizeof(struct openreg_segment_name) <= sizeof(openreg_comm_id), "it fits");

bool openreg_segment_name_read(const openreg_comm_id *id, struct openreg_segment_name *name) {
  memcpy(name, id->bytes, sizeof *name);
  return name->magic == magic_value && name->pid > 0 && name->file >= 0 && name->size >= 1 &&
         name->size <= OPENREG_MAX_RANKS;
}

/* ---- finding one ----------------------------------------------------------------------------- */

/* The number of a descriptor may stand for another file by now, and a process id for another
 * process. A sealed file of this length cannot lose its end while it is mapped. */
static const char *find_fault(int file, const struct openreg_segment_name *name) {
  struct stat status;
  struct openreg_segment head;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_ino != name->inode)
    return "its creator has let go of it";
  int seals = fcntl(file, F_GET_SEALS);
  if (status.st_uid != geteuid() || seals < 0 || !(seals & F_SEAL_SHRINK) ||
      (uint64_t)status.st_size != openreg_segment_bytes((int)name->size) ||
      pread(file, &head, sizeof head, 0) != sizeof head || head.magic != magic_value ||
      head.nonce != name->nonce || head.size != name->size)
    return "what its creator has there is no control segment of that id";
  return NULL;
}

int openreg_segment_open(const struct openreg_segment_name *name, const char **fault) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", name->pid, name->file);
  /* What is opened may be no file at all: then opening must not wait, nor make a terminal ours. */
  int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    *fault = errno == ENOENT ? "its creator has ended, has let go of it, or is on another machine"
                             : openreg_proc_error(errno);
    return -1;
  }
  *fault = find_fault(file, name);
  if (*fault == NULL)
    return file;
  close(file);
  return -1;
}

openreg_status openreg_segment_map(const struct openreg_segment_name *name,
                                   struct openreg_segment **segment) {
  const char *fault;
  int file = openreg_segment_open(name, &fault);
  if (file < 0)
    return openreg_fail(OPENREG_INVALID_ARGUMENT,
                        "openreg: the communicator of process %d cannot be joined: %s", name->pid,
                        fault);
  size_t bytes = openreg_segment_bytes((int)name->size);
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  int error = errno;
  close(file);
  if (base == MAP_FAILED)
    return openreg_fail(OPENREG_SYSTEM, "openreg: mapping the control segment of %zu bytes: %s",
                        bytes, strerror(error));
  /* Of no use to a child, and nothing for a core file. */
  (void)madvise(base, bytes, MADV_DONTFORK);
  (void)madvise(base, bytes, MADV_DONTDUMP);
  *segment = base;
  return OPENREG_OK;
}

void openreg_segment_unmap(struct openreg_segment *segment) {
  munmap(segment, openreg_segment_bytes((int)segment->size));
}
