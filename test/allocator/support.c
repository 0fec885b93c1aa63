/* support.c: see support.h. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void configure(void) {
  static const char *const strange[] = {"OPENREG_PROFILE", "OPENREG_LAUNCH_BLOCKING",
                                        "OPENREG_HOST_ACCESS", "OPENREG_DEBUG_MEMORY"};
  char group[64];
  struct timespec now;
  for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
    unsetenv(strange[i]);
  clock_gettime(CLOCK_REALTIME, &now); /* containers may share /dev/shm and have the same process
                                        * ids */
  snprintf(group, sizeof group, "test-allocator-%d-%llx%08lx", (int)getpid(),
           (unsigned long long)now.tv_sec, (unsigned long)now.tv_nsec);
  setenv("OPENREG_GROUP", group, 1);
  setenv("OPENREG_DEVICE_COUNT", "2", 1);
  setenv("OPENREG_DEVICE_MEMORY", "64M", 1);
}

void check_status(openreg_status status, openreg_status expected, const char *call,
                  const char *file, int line) {
  if (status == expected)
    return;
  print_error("%s\n  gave %s, not %s; last error: %s\n", call, openreg_status_name(status),
              openreg_status_name(expected), openreg_last_error());
  _fail(file, line);
}

void assert_error(const char *part) {
  if (strstr(openreg_last_error(), part))
    return;
  print_error("\"%s\" is not in \"%s\"\n", part, openreg_last_error());
  fail();
}

int devices_reset(void **state) {
  (void)state;
  set_settings(default_settings());
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_ok(openreg_cache_empty(device));
    assert_ok(openreg_memory_set_fraction(device, 1));
    assert_ok(openreg_memory_reset_peak(device));
    assert_ok(openreg_memory_reset_accumulated(device));
    assert_int_equal(stats_of(device).reserved_bytes[OPENREG_POOL_ALL].current, 0);
    assert_int_equal(ledger_free(device), CAPACITY);
  }
  return 0;
}

int devices_check(void **state) {
  (void)state;
  for (int device = 0; device < TEST_DEVICES; device++) {
    if (!openreg_memory_is_valid(device))
      fail_msg("%s", openreg_last_error());
    assert_ok(openreg_cache_empty(device)); /* afterwards blocks that streams used are free */
    assert_int_equal(stats_of(device).active[OPENREG_POOL_ALL].current, 0);
    if (!openreg_memory_is_valid(device))
      fail_msg("%s", openreg_last_error());
  }
  return 0;
}

openreg_block *take(int device, int stream, size_t bytes) {
  openreg_block *block = NULL;
  assert_ok(openreg_block_allocate(device, stream, bytes, &block));
  assert_non_null(block);
  return block;
}

openreg_out_of_memory_info refused(int device, int stream, size_t bytes) {
  openreg_block *none = NULL;
  openreg_out_of_memory_info refusal;
  assert_status(openreg_block_allocate(device, stream, bytes, &none), OPENREG_OUT_OF_MEMORY);
  assert_null(none);
  openreg_memory_last_out_of_memory(&refusal);
  assert_int_equal(refusal.bytes, bytes);
  return refusal;
}

size_t place_of(const openreg_block *block) {
  void *base;
  size_t bytes;
  assert_ok(openreg_arena_get(block->device, &base, &bytes));
  return (size_t)((char *)block->address - (char *)base);
}

openreg_memory_settings default_settings(void) {
  return (openreg_memory_settings){.max_split_bytes = SIZE_MAX,
                                   .max_non_split_rounding_bytes = 20 * MIB,
                                   .large_segment_bytes = 20 * MIB,
                                   .memory_fraction = 1};
}

void set_settings(openreg_memory_settings settings) {
  assert_ok(openreg_memory_set_settings(&settings));
}

uint64_t make_mempool(bool use_on_oom) {
  uint64_t mempool = 0;
  assert_ok(openreg_mempool_create(use_on_oom, NULL, &mempool));
  assert_true(mempool > 0);
  return mempool;
}

int64_t active_blocks_of(uint64_t mempool) {
  int64_t count = 0;
  for (int device = 0; device < TEST_DEVICES; device++) {
    openreg_memory_snapshot snapshot = snapshot_of(device);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
      const openreg_segment_info *segment = &snapshot.segments[i];
      for (size_t j = 0; segment->mempool == mempool && j < segment->block_count; j++)
        count += snapshot.blocks[segment->first_block + j].state != OPENREG_BLOCK_FREE;
    }
    openreg_memory_free_snapshot(&snapshot);
  }
  return count;
}

openreg_block *take_in(uint64_t mempool, int device, int stream, size_t bytes) {
  uint64_t before;
  assert_ok(openreg_mempool_current(device, &before));
  assert_ok(openreg_mempool_set_current(device, mempool));
  openreg_block *block = take(device, stream, bytes);
  assert_ok(openreg_mempool_set_current(device, before));
  return block;
}

openreg_memory_stats stats_of(int device) {
  openreg_memory_stats stats;
  assert_ok(openreg_memory_get_stats(device, &stats));
  return stats;
}

uint64_t ledger_free(int device) {
  uint64_t free_bytes, total_bytes;
  assert_ok(openreg_ledger_query(device, &free_bytes, &total_bytes));
  return free_bytes;
}

static openreg_status wait_until_open(void *data) {
  struct gate *gate = data;
  while (!atomic_load(&gate->is_open))
    ;
  return OPENREG_OK;
}

char *pin(size_t bytes) {
  void *address = NULL;
  assert_ok(openreg_pinned_allocate(bytes, &address));
  assert_true(openreg_pinned_contains(address));
  return address;
}

openreg_pinned_stats pinned_stats(void) {
  openreg_pinned_stats stats;
  assert_ok(openreg_pinned_get_stats(&stats));
  return stats;
}

int pinned_reset(void **state) {
  (void)state;
  assert_ok(openreg_pinned_empty_cache());
  openreg_pinned_reset_peak();
  openreg_pinned_reset_accumulated();
  return 0;
}

int pinned_all_freed(void **state) {
  (void)state;
  assert_int_equal(pinned_stats().active_requests.current, 0);
  return 0;
}

void set_pinned_settings(openreg_pinned_settings settings) {
  assert_ok(openreg_pinned_set_settings(&settings));
}

/* mincore(2) fails with ENOMEM where nothing is mapped. */
bool is_mapped(char *address) {
  unsigned char resident;
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  int result = mincore(address - (uintptr_t)address % page_bytes, 1, &resident);
  assert_true(result == 0 || errno == ENOMEM);
  return result == 0;
}

void gate_close(struct gate *gate, int device, int stream) {
  gate->device = device;
  gate->stream = stream;
  atomic_store(&gate->is_open, false);
  assert_ok(openreg_stream_launch(device, stream, wait_until_open, gate));
}

void gate_open(struct gate *gate) {
  atomic_store(&gate->is_open, true);
  assert_ok(openreg_stream_synchronize(gate->device, gate->stream));
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* `is_split`: whether the block, if it is free, counts as a part of a segment. */
static void add_block(totals *sums, int kind, const openreg_block_info *block, bool is_split) {
  assert_true(block->bytes > 0 && block->bytes % 512 == 0);
  if (block->state == OPENREG_BLOCK_FREE) {
    assert_int_equal(block->requested_bytes, 0);
    sums->inactive_split[kind] += is_split;
    sums->inactive_split_bytes[kind] += is_split ? (int64_t)block->bytes : 0;
    return;
  }
  bool allocated = block->state == OPENREG_BLOCK_ALLOCATED;
  sums->allocation[kind] += allocated;
  sums->allocated_bytes[kind] += allocated ? (int64_t)block->bytes : 0;
  sums->active[kind]++;
  sums->active_bytes[kind] += (int64_t)block->bytes;
  sums->requested_bytes[kind] += (int64_t)block->requested_bytes;
}

/* Checks that the blocks of a segment cover it, that no two free ones touch, and that its sums are
 * theirs. */
static void add_segment(totals *sums, const openreg_memory_snapshot *snapshot,
                        const openreg_segment_info *segment) {
  totals own = {0};
  uintptr_t address = segment->address;
  bool was_free = false, is_split = segment->block_count > 1 && !segment->is_expandable;
  for (size_t i = 0; i < segment->block_count; i++) {
    const openreg_block_info *block = &snapshot->blocks[segment->first_block + i];
    bool is_free = block->state == OPENREG_BLOCK_FREE;
    assert_int_equal(block->address, address);
    assert_false(is_free && was_free);
    add_block(&own, segment->kind, block, is_split);
    address += block->bytes;
    was_free = is_free;
  }
  assert_int_equal(address, segment->address + segment->bytes);
  assert_int_equal(segment->allocated_bytes, own.allocated_bytes[segment->kind]);
  assert_int_equal(segment->active_bytes, own.active_bytes[segment->kind]);
  assert_int_equal(segment->requested_bytes, own.requested_bytes[segment->kind]);
  own.segment[segment->kind] = !segment->is_expandable;
  own.reserved_bytes[segment->kind] = (int64_t)segment->bytes;
#define X(name)                                                                                    \
  sums->name[segment->kind] += own.name[segment->kind];                                            \
  sums->name[OPENREG_POOL_ALL] += own.name[segment->kind];
  OPENREG_MEMORY_STAT_LIST(X)
#undef X
}

totals add_up(const openreg_memory_snapshot *snapshot) {
  totals sums = {0};
  size_t blocks = 0;
  for (size_t i = 0; i < snapshot->segment_count; i++) {
    const openreg_segment_info *segment = &snapshot->segments[i], *below = segment - 1;
    assert_int_equal(segment->first_block, blocks);
    assert_true(segment->kind == OPENREG_POOL_SMALL || segment->kind == OPENREG_POOL_LARGE);
    assert_true(i == 0 || segment->address >= below->address + below->bytes);
    add_segment(&sums, snapshot, segment);
    blocks += segment->block_count;
  }
  assert_int_equal(snapshot->block_count, blocks);
  return sums;
}

openreg_memory_snapshot snapshot_of(int device) {
  openreg_memory_snapshot snapshot;
  assert_ok(openreg_memory_take_snapshot(device, &snapshot));
  return snapshot;
}

void assert_snapshot_agrees(int device) {
  openreg_memory_snapshot snapshot = snapshot_of(device);
  totals sums = add_up(&snapshot);
  openreg_memory_stats stats = stats_of(device);
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++) {
#define X(name) assert_int_equal(sums.name[kind], stats.name[kind].current);
    OPENREG_MEMORY_STAT_LIST(X)
#undef X
  }
  openreg_memory_free_snapshot(&snapshot);
}

/* ---- OPENREG_DEBUG_MEMORY -------------------------------------------------------------------- */

unsigned char *memory(const void *address) {
  return openreg_kernel_view(address);
}

void assert_filled(const void *address, size_t bytes, int value) {
  for (size_t i = 0; i < bytes; i++)
    assert_int_equal(memory(address)[i], value);
}

void assert_clean(int device) {
  assert_ok(openreg_device_synchronize(device));
  assert_ok(openreg_memory_check(device));
}
