/* planning.c: the runtime of the planner, in which nothing is computed (openreg_planning.h).
 *
 * Addresses are handed out upwards. A freed address is used again only when all blocks above it are
 * free, too. So the blocks in use and the free ones below them are a stack, and a question that
 * frees all that it takes leaves the stack as it was. The range is reserved without access: host
 * code that read device memory directly would end the process rather than plan with garbage.
 */
#include "cudart/include/openreg_planning.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "cudart/internal.h"

enum { ALIGNMENT = 512 };

/* Some systems and sanitizers have less room. */
#define LARGEST_RANGE_BYTES  ((uint64_t)32 << 40)
#define SMALLEST_RANGE_BYTES ((uint64_t)1 << 38)

struct block {
  uint64_t offset;
  bool is_free;
};

struct list {
  void *items;
  size_t count, room;
};

static struct {
  char *base;     /* NULL: this process does not plan */
  uint64_t bytes; /* of the range */
  uint64_t end;
  struct list blocks; /* struct block, in the order of their offsets */
  struct list events; /* struct openreg_planned_event */
  uint64_t reads;
  int value; /* of all device memory */
  int binary_version;
} planning;

/* ---- lists ----------------------------------------------------------------------------------- */

static void *append(struct list *list, size_t size) {
  enum { FIRST_ROOM = 1024 };
  if (list->count == list->room) {
    size_t room = list->room > 0 ? 2 * list->room : FIRST_ROOM;
    void *items = realloc(list->items, room * size);
    if (items == NULL)
      return NULL;
    list->items = items;
    list->room = room;
  }
  return (char *)list->items + list->count++ * size;
}

static bool record(void *address, int64_t bytes) {
  struct openreg_planned_event *event = append(&planning.events, sizeof *event);
  if (event != NULL)
    *event = (struct openreg_planned_event){(uint64_t)(uintptr_t)address, bytes};
  return event != NULL;
}

/* ---- for the rest of the runtime ------------------------------------------------------------- */

bool cudart_is_planning(void) {
  return planning.base != NULL;
}

bool cudart_plan_contains(const void *address) {
  return planning.base != NULL &&
         (uint64_t)((const char *)address - planning.base) < planning.bytes;
}

/* Nothing that decides about memory is longer. Longer copies are results, whose memory would be
 * touched for nothing. */
void cudart_plan_read(char *to, size_t bytes) {
  enum { LONGEST = 1 << 20, WORD = 8 };
  planning.reads++;
  for (size_t i = 0; bytes <= LONGEST && i < bytes; i++)
    to[i] = (char)(i % WORD == 0 ? planning.value : 0);
}

int cudart_plan_binary_version(void) {
  return planning.binary_version;
}

/* ---- for the planner ------------------------------------------------------------------------- */

const char *openreg_cudart_device_error(void) {
  const openreg_config *config;
  return openreg_config_get(&config) == OPENREG_OK ? NULL : openreg_last_error();
}

int openreg_cudart_start_planning(int binary_version) {
  planning.binary_version = binary_version;
  if (planning.base != NULL)
    return 0;
  for (uint64_t bytes = LARGEST_RANGE_BYTES; bytes >= SMALLEST_RANGE_BYTES; bytes /= 2) {
    void *range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      planning.bytes = bytes;
      planning.base = range;
      return 0;
    }
  }
  return -1;
}

void *openreg_cudart_plan_malloc(ssize_t bytes, int device, struct CUstream_st *stream) {
  (void)device, (void)stream;
  if (bytes <= 0 || (uint64_t)bytes > planning.bytes - planning.end)
    return NULL;
  struct block *block = append(&planning.blocks, sizeof *block);
  if (block == NULL)
    return NULL;
  *block = (struct block){.offset = planning.end};
  char *address = planning.base + planning.end;
  planning.end += ((uint64_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return record(address, bytes) ? address : NULL;
}

void openreg_cudart_plan_free(void *address, ssize_t bytes, int device,
                              struct CUstream_st *stream) {
  (void)device, (void)stream;
  if (address == NULL)
    return;
  struct block *blocks = planning.blocks.items;
  uint64_t offset = (uint64_t)((char *)address - planning.base);
  size_t i = planning.blocks.count;
  while (i > 0 && blocks[i - 1].offset > offset)
    i--;
  if (i > 0 && blocks[i - 1].offset == offset)
    blocks[i - 1].is_free = true;
  while (planning.blocks.count > 0 && blocks[planning.blocks.count - 1].is_free)
    planning.end = blocks[--planning.blocks.count].offset;
  (void)record(address, -bytes);
}

void openreg_cudart_clear_plan(int value) {
  planning.value = value;
  planning.events.count = 0;
  planning.reads = 0;
}

size_t openreg_cudart_planned_events(const struct openreg_planned_event **events) {
  *events = planning.events.items;
  return planning.events.count;
}

uint64_t openreg_cudart_planned_reads(void) {
  return planning.reads;
}
