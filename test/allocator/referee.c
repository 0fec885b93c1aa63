/* referee.c: what the referee knows, and the rules that it watches. See referee.h. */
#include "referee.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const int streams[STREAMS] = {0, 31, OPENREG_STREAMS_PER_DEVICE - 1};

struct arena arenas[TEST_DEVICES];
struct slot slots[MOST];
struct mempool mempools[POOLS];
int slot_count, waiting_count;
struct operation now;

/* The first that the referee made. */
static char objection[256];

__attribute__((format(printf, 1, 2))) static void object(const char *format, ...) {
  va_list arguments;
  if (objection[0])
    return;
  va_start(arguments, format);
  vsnprintf(objection, sizeof objection, format, arguments);
  va_end(arguments);
}

void assert_no_objection(void) {
  if (objection[0])
    fail_msg("%s", objection);
}

/* ---- streams and other processes, as the test says ------------------------------------------- */

openreg_status __wrap_openreg_stream_query(int device, int stream);
openreg_status __wrap_openreg_stream_drain(int device, int stream);
openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle);
openreg_status __wrap_openreg_ipc_withdraw(void *address);

static unsigned bit_of(int stream) {
  for (int i = 0; i < STREAMS; i++)
    if (streams[i] == stream)
      return 1u << i;
  object("stream %d was asked about", stream);
  return 0;
}

void set_busy(int device, unsigned bit, bool busy) {
  arenas[device].busy = busy ? arenas[device].busy | bit : arenas[device].busy & ~bit;
  for (int i = 0; !busy && i < MOST; i++)
    if (slots[i].device == device)
      slots[i].unseen &= ~bit;
}

openreg_status __wrap_openreg_stream_query(int device, int stream) {
  return arenas[device].busy & bit_of(stream) ? OPENREG_NOT_READY : OPENREG_OK;
}

openreg_status __wrap_openreg_stream_drain(int device, int stream) {
  set_busy(device, bit_of(stream), false);
  return OPENREG_OK;
}

static struct slot *slot_at(const void *address) {
  for (int device = 0; device < TEST_DEVICES; device++) {
    size_t offset = (size_t)((const char *)address - arenas[device].base);
    if (offset < CAPACITY && arenas[device].blocks[offset / UNIT])
      return &slots[arenas[device].blocks[offset / UNIT] - 1];
  }
  object("%p is not in a block", address);
  return &slots[0];
}

openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle) {
  (void)stream, (void)handle;
  struct slot *slot = slot_at(address);
  if (bytes != slot->requested)
    object("%zu bytes of a block of %zu were exported", bytes, slot->requested);
  slot->exported = true;
  slot->holders++;
  return OPENREG_OK;
}

openreg_status __wrap_openreg_ipc_withdraw(void *address) {
  struct slot *slot = slot_at(address);
  if (slot->is != GIVEN_BACK || !slot->exported)
    object("a block that was not exported and freed was withdrawn");
  return slot->holders > 0 ? OPENREG_NOT_READY : OPENREG_OK;
}

void device_looks(int device) {
  for (int i = 0; waiting_count > 0 && i < MOST; i++)
    if (slots[i].device == device && slots[i].is == AWAITING)
      slots[i].waiting &= arenas[device].busy;
}

/* ---- the referee's rules --------------------------------------------------------------------- */

static void count_up(openreg_stat stats[OPENREG_POOL_KINDS], int kind, size_t amount) {
  const int kinds[] = {ALL, kind};
  for (int i = 0; i < 2; i++) {
    openreg_stat *stat = &stats[kinds[i]];
    stat->current += (int64_t)amount;
    stat->allocated += (int64_t)amount;
    stat->peak = stat->current > stat->peak ? stat->current : stat->peak;
  }
}

static void count_down(openreg_stat stats[OPENREG_POOL_KINDS], int kind, size_t amount) {
  const int kinds[] = {ALL, kind};
  for (int i = 0; i < 2; i++) {
    stats[kinds[i]].current -= (int64_t)amount;
    stats[kinds[i]].freed += (int64_t)amount;
  }
}

bool is_kept(uint64_t mempool) {
  for (int i = 0; i < POOLS; i++)
    if (mempool != 0 && mempools[i].number == mempool)
      return true;
  return false;
}

static bool serves_on_oom(uint64_t mempool) {
  for (int i = 0; i < POOLS; i++)
    if (mempool != 0 && mempools[i].number == mempool)
      return mempools[i].use_on_oom;
  return false;
}

bool owns(const struct owner *owner, uint64_t mempool, int stream, int kind) {
  return owner->kind == kind && owner->stream == stream && owner->mempool == mempool;
}

static void was_reserved(struct arena *arena, const openreg_memory_event *event, size_t offset) {
  int kind = now.requested > MIB ? LARGE : SMALL;
  if (event->bytes == 0 || event->bytes % GRANULE != 0 || offset % GRANULE != 0)
    object("%zu bytes were reserved", event->bytes);
  if (event->stream != now.stream || event->mempool != now.mempool)
    object("memory was reserved for another pool than the current one");
  for (size_t i = offset / GRANULE; i < (offset + event->bytes) / GRANULE; i++) {
    if (arena->owners[i].kind != 0)
      object("granule %zu was reserved twice", i);
    arena->owners[i] = (struct owner){event->mempool, event->stream, kind};
  }
  count_up(arena->sums.reserved_bytes, kind, event->bytes);
  arena->sums.device_allocs++;
  now.reserved = true;
  if ((double)arena->sums.reserved_bytes[ALL].current > arena->fraction * CAPACITY)
    object("more was reserved than the fraction %g allows", arena->fraction);
}

static void was_released(struct arena *arena, const openreg_memory_event *event, size_t offset) {
  int kind = arena->owners[offset / GRANULE].kind;
  if (is_kept(event->mempool) && now.emptied != event->mempool)
    object("memory of pool %" PRIu64 " was given back, which keeps it", event->mempool);
  for (size_t i = offset / GRANULE; i < (offset + event->bytes) / GRANULE; i++) {
    if (kind == 0 || !owns(&arena->owners[i], event->mempool, event->stream, kind))
      object("granule %zu was given back by another pool", i);
    arena->owners[i].kind = 0;
  }
  for (size_t unit = offset / UNIT; unit < (offset + event->bytes) / UNIT; unit++)
    if (arena->blocks[unit])
      object("unit %zu was given back in use", unit);
  count_down(arena->sums.reserved_bytes, kind, event->bytes);
  arena->sums.device_frees++;
}

static int empty_slot(void) {
  for (int i = 0; i < MOST; i++)
    if (slots[i].is == NO_BLOCK)
      return i;
  object("there are more blocks than were asked for");
  return 0;
}

static void was_allocated(struct arena *arena, const openreg_memory_event *event, size_t offset) {
  int kind = event->bytes > MIB ? LARGE : SMALL;
  size_t unit = offset / UNIT, units = event->bytes / UNIT;
  if (event->mempool != now.mempool && (now.mempool != 0 || !serves_on_oom(event->mempool)))
    object("pool %" PRIu64 " served a request of pool %" PRIu64, event->mempool, now.mempool);
  for (size_t i = offset / GRANULE; i <= (offset + event->bytes - 1) / GRANULE; i++)
    if (!owns(&arena->owners[i], event->mempool, event->stream, kind))
      object("a block lies in granule %zu of another pool", i);
  now.latest = empty_slot();
  for (size_t i = unit; i < unit + units; i++) {
    if (arena->blocks[i])
      object("unit %zu has two blocks", i);
    arena->blocks[i] = (uint16_t)(now.latest + 1);
  }
  slots[now.latest] = (struct slot){.is = HELD,
                                    .device = event->device,
                                    .stream = event->stream,
                                    .kind = kind,
                                    .unit = unit,
                                    .units = units,
                                    .requested = now.requested,
                                    .mempool = event->mempool};
  slot_count++;
  openreg_memory_stats *sums = &arena->sums;
  count_up(sums->allocation, kind, 1);
  count_up(sums->allocated_bytes, kind, event->bytes);
  count_up(sums->active, kind, 1);
  count_up(sums->active_bytes, kind, event->bytes);
  count_up(sums->requested_bytes, kind, now.requested);
}

static void was_freed(struct arena *arena, const openreg_memory_event *event, struct slot *slot) {
  if (slot->is != GIVEN_BACK || slot->holders > 0)
    object("a block was freed that is held");
  slot->is = AWAITING;
  slot->waiting = slot->recorded & arena->busy;
  count_down(arena->sums.allocation, slot->kind, 1);
  count_down(arena->sums.allocated_bytes, slot->kind, event->bytes);
}

static void was_completed(struct arena *arena, const openreg_memory_event *event,
                          struct slot *slot) {
  if (slot->is != AWAITING || slot->unseen)
    object("a block is free that a stream still uses");
  memset(&arena->blocks[slot->unit], 0, slot->units * sizeof *arena->blocks);
  count_down(arena->sums.active, slot->kind, 1);
  count_down(arena->sums.active_bytes, slot->kind, event->bytes);
  count_down(arena->sums.requested_bytes, slot->kind, slot->requested);
  slot->is = NO_BLOCK;
  slot_count--;
  waiting_count--;
}

void watch(const openreg_memory_event *event) {
  struct arena *arena = &arenas[event->device];
  size_t offset = event->address - (uintptr_t)arena->base;
  struct slot *slot = NULL;
  if (event->action == OPENREG_MEMORY_FREE_REQUESTED ||
      event->action == OPENREG_MEMORY_FREE_COMPLETED) {
    slot = slot_at((void *)event->address);
    if (slot->unit != offset / UNIT || slot->units != event->bytes / UNIT ||
        slot->stream != event->stream || slot->mempool != event->mempool)
      object("the event of a block is of another");
  }
  switch (event->action) {
  case OPENREG_MEMORY_ALLOCATED:
    was_allocated(arena, event, offset);
    break;
  case OPENREG_MEMORY_FREE_REQUESTED:
    was_freed(arena, event, slot);
    break;
  case OPENREG_MEMORY_FREE_COMPLETED:
    was_completed(arena, event, slot);
    break;
  case OPENREG_MEMORY_RESERVED:
    was_reserved(arena, event, offset);
    break;
  case OPENREG_MEMORY_RELEASED:
    was_released(arena, event, offset);
    break;
  case OPENREG_MEMORY_EXHAUSTED:
    arena->sums.ooms++;
    if (event->bytes != now.requested || event->address != ledger_free(event->device))
      object("a request failed with figures that are not its own");
    break;
  }
}
