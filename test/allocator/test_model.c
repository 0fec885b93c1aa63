/* test_model.c: a million operations at random, watched by a referee that is too simple to be
 * wrong: who owns each granule of the arena, and which block each unit of it belongs to.
 *
 * The referee learns of what happens from the observer, and objects to whatever is not allowed
 * then: a block on memory that is not free or not of its pool, a free that comes before streams and
 * processes are done, memory given back that is in use or kept. What it adds up must be what the
 * statistics say, after each operation. Streams are busy, and other processes have memory, when the
 * test says so: the linker puts its functions in front of the device layer's.
 *
 * OPENREG_TEST_SEED gives other operations.
 */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OPERATIONS = 50000 };
#else
enum { OPERATIONS = 1000000 };
#endif

enum {
  ALL = OPENREG_POOL_ALL,
  SMALL = OPENREG_POOL_SMALL,
  LARGE = OPENREG_POOL_LARGE,
  GRANULE = 2 * MIB,
  GRANULES = CAPACITY / GRANULE,
  UNIT = 512,
  UNITS = CAPACITY / UNIT,
  MOST = 500,  /* blocks, on both devices */
  POOLS = 5,   /* memory pools at a time */
  STREAMS = 3, /* that are allocated on, and recorded */
  SCAN = 1024, /* operations between two looks at everything */
  DOUBT = 16,  /* refusals of which one is doubted */
  PHASE = 4000 /* operations between filling and draining */
};

static const int streams[STREAMS] = {0, 31, OPENREG_STREAMS_PER_DEVICE - 1};

/* ---- what the referee knows ------------------------------------------------------------------ */

struct owner {
  uint64_t mempool;
  int stream, kind; /* 0: unreserved */
};

struct slot {
  openreg_block *block;                             /* while the program holds it */
  enum { NO_BLOCK, HELD, GIVEN_BACK, AWAITING } is; /* AWAITING: FREE_REQUESTED was told */
  int device, stream, kind;
  size_t unit, units, requested;
  uint64_t mempool;
  unsigned recorded;
  unsigned unseen;  /* recorded streams that were not idle since it was freed */
  unsigned waiting; /* that were not idle when the allocator had to look */
  int holders;      /* other processes */
  bool exported;
};

struct mempool {
  uint64_t number; /* 0: none */
  bool use_on_oom;
};

static struct arena {
  char *base;
  struct owner owners[GRANULES];
  uint16_t blocks[UNITS]; /* slot + 1; 0: free */
  double fraction;
  unsigned busy;             /* a bit for each of `streams` */
  openreg_memory_stats sums; /* but for segments and splits, which are counted by scanning */
} arenas[TEST_DEVICES];

static struct slot slots[MOST];
static struct mempool mempools[POOLS];
static int slot_count, waiting_count;

/* The operation that is being done. */
static struct {
  int device, stream, latest; /* latest: the slot of the block that was handed out */
  size_t requested;
  uint64_t mempool, emptied; /* emptied: the only pool whose kept memory may be given back */
  bool reserved;
} now;

static char objection[256];

__attribute__((format(printf, 1, 2))) static void object(const char *format, ...) {
  va_list arguments;
  if (objection[0])
    return;
  va_start(arguments, format);
  vsnprintf(objection, sizeof objection, format, arguments);
  va_end(arguments);
}

/* ---- numbers at random ----------------------------------------------------------------------- */

static uint64_t state_of_random = 88172645463325252u;

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003). */
static uint64_t next_random(void) {
  state_of_random ^= state_of_random << 13;
  state_of_random ^= state_of_random >> 7;
  state_of_random ^= state_of_random << 17;
  return state_of_random;
}

static int below(int limit) {
  return (int)(next_random() % (uint64_t)limit);
}

static size_t random_size(void) {
  static const size_t limits[] = {512, 4 * KIB, 64 * KIB, MIB, MIB, 6 * MIB};
  static size_t before;
  if (below(4) > 0 || before == 0) /* sizes come again */
    before = 1 + next_random() % limits[below(6)];
  return before;
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

static void set_busy(int device, unsigned bit, bool busy) {
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

static bool is_kept(uint64_t mempool) {
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

static bool owns(const struct owner *owner, uint64_t mempool, int stream, int kind) {
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

static void watch(const openreg_memory_event *event) {
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

/* ---- what must be so after an operation ------------------------------------------------------ */

static void assert_stats_are_the_referees(int device) {
  const openreg_memory_stats *sums = &arenas[device].sums;
  openreg_memory_stats stats = stats_of(device);
#define SAME(name) assert_memory_equal(&stats.name, &sums->name, sizeof stats.name)
  SAME(allocation);
  SAME(allocated_bytes);
  SAME(active);
  SAME(active_bytes);
  SAME(requested_bytes);
  SAME(reserved_bytes);
  SAME(ooms);
  SAME(device_allocs);
  SAME(device_frees);
#undef SAME
  assert_true(stats.alloc_retries >= stats.ooms);
}

/* A block of the program's, in a slot that the device has looked after: it waits for a reason. */
static void assert_nothing_waits_in_vain(int device, bool lent_too) {
  for (int i = 0; waiting_count > 0 && i < MOST; i++) {
    const struct slot *slot = &slots[i];
    if (slot->device != device)
      continue;
    if (slot->is == AWAITING)
      assert_true(slot->waiting != 0);
    if (slot->is == GIVEN_BACK && lent_too)
      assert_true(slot->holders > 0);
  }
}

/* What the allocator does now for blocks that wait for streams. */
static void device_looks(int device) {
  for (int i = 0; waiting_count > 0 && i < MOST; i++)
    if (slots[i].device == device && slots[i].is == AWAITING)
      slots[i].waiting &= arenas[device].busy;
}

static void assert_no_objection(void) {
  if (objection[0])
    fail_msg("%s", objection);
}

/* Segments are runs of granules of one owner; what is free in them must be so in the snapshot. */
static void assert_snapshot_is_the_referees(int device) {
  const struct arena *arena = &arenas[device];
  openreg_memory_snapshot snapshot = snapshot_of(device);
  size_t granules = 0;
  for (size_t i = 0; i < snapshot.segment_count; i++) {
    const openreg_segment_info *segment = &snapshot.segments[i];
    size_t first = (segment->address - (uintptr_t)arena->base) / GRANULE;
    for (size_t j = first; j < first + segment->bytes / GRANULE; j++, granules++)
      assert_true(owns(&arena->owners[j], segment->mempool, segment->stream, segment->kind));
    for (size_t j = 0; j < segment->block_count; j++) {
      const openreg_block_info *block = &snapshot.blocks[segment->first_block + j];
      size_t unit = (block->address - (uintptr_t)arena->base) / UNIT;
      const struct slot *slot = arena->blocks[unit] ? &slots[arena->blocks[unit] - 1] : NULL;
      assert_true((block->state == OPENREG_BLOCK_FREE) == !slot);
      assert_true((block->state == OPENREG_BLOCK_AWAITING_FREE) == (slot && slot->is == AWAITING));
      assert_true(!slot || (slot->unit == unit && slot->units == block->bytes / UNIT &&
                            slot->requested == block->requested_bytes));
    }
  }
  size_t reserved = 0;
  for (int i = 0; i < GRANULES; i++)
    reserved += arena->owners[i].kind != 0;
  assert_int_equal(granules, reserved);
  openreg_memory_free_snapshot(&snapshot);
}

/* What each memory pool has reserved now; of one that is gone, nothing. */
static void assert_accounts_are_the_referees(int device) {
  openreg_mempool_stats *accounts;
  size_t count;
  int64_t reserved = 0, owned = 0;
  assert_ok(openreg_mempool_get_stats(device, &accounts, &count));
  for (int i = 0; i < GRANULES; i++) {
    const struct owner *owner = &arenas[device].owners[i];
    for (size_t j = 0; owner->kind != 0 && owner->mempool != 0 && j < count; j++)
      if (accounts[j].mempool == owner->mempool)
        accounts[j].reserved_bytes[owner->kind].current -= GRANULE;
    owned += owner->kind != 0 && owner->mempool != 0;
  }
  for (size_t j = 0; j < count; j++) {
    assert_int_equal(accounts[j].reserved_bytes[SMALL].current, 0);
    assert_int_equal(accounts[j].reserved_bytes[LARGE].current, 0);
    reserved += accounts[j].reserved_bytes[ALL].current;
  }
  assert_int_equal(reserved, owned * GRANULE);
  free(accounts);
}

static void look_at_everything(void) {
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_snapshot_agrees(device);
    assert_snapshot_is_the_referees(device);
    assert_accounts_are_the_referees(device);
    if (!openreg_memory_is_valid(device))
      fail_msg("%s", openreg_last_error());
    assert_int_equal(CAPACITY - ledger_free(device),
                     arenas[device].sums.reserved_bytes[ALL].current);
  }
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Whether a request of `units` could have been cut from free memory of an owner. */
static bool has_room(const struct arena *arena, uint64_t mempool, size_t units, int kind) {
  size_t run = 0;
  for (size_t unit = 0; unit < UNITS; unit++) {
    bool is_free = !arena->blocks[unit] &&
                   owns(&arena->owners[unit / (GRANULE / UNIT)], mempool, now.stream, kind);
    run = is_free ? run + 1 : 0;
    if (run >= units)
      return true;
  }
  return false;
}

/* Free bytes of the current pool right below a granule. */
static size_t free_below(const struct arena *arena, size_t granule) {
  size_t unit = granule * GRANULE / UNIT;
  while (unit > 0 && !arena->blocks[unit - 1] &&
         owns(&arena->owners[(unit - 1) / (GRANULE / UNIT)], now.mempool, now.stream, LARGE))
    unit--;
  return granule * GRANULE - unit * UNIT;
}

/* Whether what a request lacks could have been reserved. */
static bool could_reserve(const struct arena *arena, size_t bytes, int kind) {
  double allowed = arena->fraction * CAPACITY - (double)arena->sums.reserved_bytes[ALL].current;
  for (size_t first = 0; first < GRANULES; first++) {
    if (arena->owners[first].kind != 0 || (first > 0 && arena->owners[first - 1].kind == 0))
      continue;
    size_t last = first;
    while (last < GRANULES && arena->owners[last].kind == 0)
      last++;
    size_t lacking = bytes - (kind == LARGE ? free_below(arena, first) : 0);
    lacking = (lacking + GRANULE - 1) / GRANULE * GRANULE;
    if (lacking <= (last - first) * GRANULE && (double)lacking <= allowed)
      return true;
  }
  return false;
}

static void assert_refusal_is_right(void) {
  const struct arena *arena = &arenas[now.device];
  size_t units = (now.requested + UNIT - 1) / UNIT;
  int kind = units * UNIT > MIB ? LARGE : SMALL;
  assert_false(has_room(arena, now.mempool, units, kind));
  assert_false(could_reserve(arena, units * UNIT, kind));
  for (int i = 0; now.mempool == 0 && i < POOLS; i++)
    assert_false(mempools[i].use_on_oom && has_room(arena, mempools[i].number, units, kind));
}

/* ---- operations ------------------------------------------------------------------------------ */

static void allocate(void) {
  int pool = below(2 * POOLS); /* half of all in pool 0 */
  now.device = below(TEST_DEVICES);
  now.stream = streams[below(STREAMS)];
  now.requested = random_size();
  now.mempool = pool < POOLS ? mempools[pool].number : 0;
  now.latest = -1;
  assert_ok(openreg_mempool_set_current(now.device, now.mempool));
  device_looks(now.device);
  openreg_block *block;
  now.reserved = false;
  openreg_status status = openreg_block_allocate(now.device, now.stream, now.requested, &block);
  assert_nothing_waits_in_vain(now.device, status != OPENREG_OK || now.reserved);
  if (status != OPENREG_OK) {
    assert_int_equal(status, OPENREG_OUT_OF_MEMORY);
    assert_int_equal(now.latest, -1);
    if (below(DOUBT) == 0)
      assert_refusal_is_right();
    return;
  }
  assert_true(now.latest >= 0);
  struct slot *slot = &slots[now.latest];
  slot->block = block;
  assert_ptr_equal(block->address, arenas[now.device].base + slot->unit * UNIT);
  assert_int_equal(block->bytes, (now.requested + UNIT - 1) / UNIT * UNIT);
  assert_int_equal(block->requested_bytes, now.requested);
  assert_int_equal(block->stream, now.stream);
  assert_int_equal(block->device, now.device);
}

/* A block that the program holds, or NULL. */
static struct slot *random_block(void) {
  int from = below(MOST);
  for (int i = 0; i < MOST; i++)
    if (slots[(from + i) % MOST].is == HELD)
      return &slots[(from + i) % MOST];
  return NULL;
}

static void free_one(struct slot *slot) {
  openreg_block *block = slot->block;
  void *address = block->address;
  assert_ptr_equal(openreg_block_find(address), block);
  if (below(4) == 0) {
    int other = below(STREAMS);
    assert_ok(openreg_block_record_stream(block, streams[other]));
    if (streams[other] != slot->stream)
      slot->recorded = 1u << other;
  }
  slot->unseen = slot->recorded & arenas[slot->device].busy;
  slot->is = GIVEN_BACK;
  waiting_count++;
  openreg_block_free(block);
  assert_null(openreg_block_find(address));
  now.device = slot->device;
}

static void export_one(struct slot *slot) {
  openreg_ipc_handle handle;
  assert_ok(openreg_block_export(slot->block, slot->stream, &handle));
  assert_nothing_waits_in_vain(slot->device, true);
}

/* Other processes let go of something, or the streams of a device begin or end work. */
static void let_others_act(void) {
  if (below(2) == 0) {
    set_busy(below(TEST_DEVICES), 1u << below(STREAMS), below(2) == 0);
    return;
  }
  for (int i = 0, from = below(MOST); i < MOST; i++)
    if (slots[(from + i) % MOST].holders > 0) {
      slots[(from + i) % MOST].holders--;
      return;
    }
}

/* What is left free, of pools that do not keep it, is less than a granule in each place. */
static void assert_is_empty(int device, uint64_t only) {
  const struct arena *arena = &arenas[device];
  for (size_t i = 0; i < GRANULES; i++) {
    const struct owner *owner = &arena->owners[i];
    bool concerned = only ? owner->mempool == only : !is_kept(owner->mempool);
    if (owner->kind == 0 || !concerned)
      continue;
    bool used = false;
    for (size_t unit = i * GRANULE / UNIT; unit < (i + 1) * GRANULE / UNIT && !used; unit++)
      used = arena->blocks[unit] != 0;
    assert_true(used);
  }
}

static void empty_cache(void) {
  now.device = below(TEST_DEVICES);
  assert_ok(openreg_cache_empty(now.device));
  assert_is_empty(now.device, 0);
  for (int i = 0; i < MOST; i++)
    assert_true(slots[i].device != now.device || slots[i].is != AWAITING);
  assert_nothing_waits_in_vain(now.device, true);
}

static void set_fraction(void) {
  static const double fractions[] = {0.25, 0.5, 1, 1};
  now.device = below(TEST_DEVICES);
  arenas[now.device].fraction = fractions[below(4)];
  assert_ok(openreg_memory_set_fraction(now.device, arenas[now.device].fraction));
}

/* Creates a pool where there is none; empties or destroys one that is there. */
static void change_mempool(void) {
  struct mempool *mempool = &mempools[below(POOLS)];
  if (mempool->number == 0) {
    mempool->use_on_oom = below(2) == 0;
    assert_ok(openreg_mempool_create(mempool->use_on_oom, &mempool->number));
    return;
  }
  uint64_t number = now.emptied = mempool->number;
  for (int device = 0; device < TEST_DEVICES; device++)
    assert_ok(openreg_mempool_set_current(device, 0));
  if (below(2) == 0) {
    assert_ok(openreg_mempool_empty(number));
  } else {
    assert_ok(openreg_mempool_destroy(number));
    *mempool = (struct mempool){0};
  }
  for (int device = 0; device < TEST_DEVICES; device++)
    assert_is_empty(device, number);
  now.emptied = 0;
}

static void collect(void) {
  now.device = below(TEST_DEVICES);
  assert_ok(openreg_memory_collect(now.device));
  assert_nothing_waits_in_vain(now.device, true);
}

static void assert_use_counts(void) {
  for (int i = 0; i < POOLS; i++) {
    int64_t blocks, counted = 0;
    if (mempools[i].number == 0)
      continue;
    assert_ok(openreg_mempool_use_count(mempools[i].number, &blocks));
    for (int j = 0; j < MOST; j++)
      counted += slots[j].is != NO_BLOCK && slots[j].mempool == mempools[i].number;
    assert_int_equal(blocks, counted);
  }
}

static void do_something(int operation) {
  bool filling = operation / PHASE % 2 == 0;
  int drawn = below(1000);
  struct slot *slot = drawn < 970 ? random_block() : NULL;
  if (drawn < 940 && (below(8) < (filling ? 5 : 3) || !slot) && slot_count < MOST)
    allocate();
  else if (drawn < 940 && slot)
    free_one(slot);
  else if (drawn < 950 && slot)
    export_one(slot);
  else if (drawn < 990)
    let_others_act();
  else if (drawn < 994)
    change_mempool();
  else if (drawn < 996)
    collect();
  else if (drawn < 998)
    empty_cache();
  else
    set_fraction();
}

/* Everything is let go of, and given back. */
static void finish(void) {
  for (int i = 0; i < MOST; i++) {
    slots[i].holders = 0;
    if (slots[i].is == HELD)
      free_one(&slots[i]);
  }
  for (int i = 0; i < POOLS; i++)
    if (mempools[i].number)
      assert_ok(openreg_mempool_destroy(mempools[i].number));
  memset(mempools, 0, sizeof mempools);
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_ok(openreg_mempool_set_current(device, 0));
    assert_ok(openreg_cache_empty(device));
    assert_int_equal(ledger_free(device), CAPACITY);
  }
  assert_int_equal(slot_count, 0);
  assert_int_equal(waiting_count, 0);
}

static void no_operation_breaks_a_rule_and_every_figure_is_exact(void **state) {
  (void)state;
  const char *seed = getenv("OPENREG_TEST_SEED");
  if (seed)
    state_of_random = strtoull(seed, NULL, 0) | 1;
  print_message("%d operations, OPENREG_TEST_SEED=%" PRIu64 "\n", OPERATIONS, state_of_random);
  for (int device = 0; device < TEST_DEVICES; device++) {
    void *base;
    size_t bytes;
    assert_ok(openreg_arena_get(device, &base, &bytes));
    assert_int_equal(bytes, CAPACITY);
    arenas[device].base = base;
    arenas[device].fraction = 1;
  }
  openreg_memory_observe(watch);
  for (int i = 0; i < OPERATIONS; i++) {
    do_something(i);
    assert_no_objection();
    assert_stats_are_the_referees(now.device);
    if (i % SCAN == 0) {
      look_at_everything();
      assert_use_counts();
    }
  }
  finish();
  look_at_everything();
  openreg_memory_observe(NULL);
  for (int device = 0; device < TEST_DEVICES; device++) {
    const openreg_memory_stats *sums = &arenas[device].sums;
    assert_true(sums->allocation[ALL].allocated > OPERATIONS / 10);
    assert_true(sums->ooms > OPERATIONS / 1000);
    assert_true(sums->device_frees > OPERATIONS / 1000);
  }
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(no_operation_breaks_a_rule_and_every_figure_is_exact),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
