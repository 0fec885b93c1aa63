/* test_random.c: random operations on two devices, compared with a model that is too simple to be
 * wrong: the blocks that somebody holds, which never overlap, and their sums. The same seed gives
 * the same operations. policy/ compares the policy itself with a second implementation.
 *
 * The linker replaces functions of the device layer, so that the test decides which exported blocks
 * another process holds.
 */
#include "support.h"

#include <string.h>

enum { ALL = OPENREG_POOL_ALL, MOST = 300, SAMPLE = 64, WALK = 512, POOLS = 2 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OPERATIONS = 20000 };
#else
enum { OPERATIONS = 100000 };
#endif

/* A block that the program holds, or that another process holds after the program freed it. */
struct live {
  openreg_block *block;
  char *from, *to;
  size_t requested;
  int device;
  bool is_exported, is_freed;
};

static struct live live[MOST];
static int count;
static int64_t refusals[TEST_DEVICES];
static uint64_t mempools[POOLS];
static size_t latest; /* the request that was freed last */

/* ---- random numbers -------------------------------------------------------------------------- */

static uint64_t state_of_random;

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
  static const int limits[] = {512, 4 * KIB, 64 * KIB, MIB, MIB, 3 * MIB, 3 * MIB, 24 * MIB};
  return 1 + next_random() % (uint64_t)limits[below(8)];
}

/* ---- replaced functions of the device layer -------------------------------------------------- */

openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle);
openreg_status __wrap_openreg_ipc_withdraw(void *address);

openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle) {
  (void)address, (void)bytes, (void)stream;
  memset(handle, 7, sizeof *handle);
  return OPENREG_OK;
}

/* Another process holds the block as long as it is in the model. */
openreg_status __wrap_openreg_ipc_withdraw(void *address) {
  for (int i = 0; i < count; i++)
    if (live[i].from == address && live[i].is_freed)
      return OPENREG_NOT_READY;
  return OPENREG_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void assert_alone(const struct live *new) {
  for (int i = 0; i < count; i++)
    if (new->from < live[i].to && live[i].from < new->to)
      fail_msg("%p overlaps %p", (void *)new->from, (void *)live[i].from);
}

static void allocate(void) {
  int device = below(TEST_DEVICES), stream = below(3) * 32, pool = below(2 * POOLS);
  size_t requested = latest && below(4) == 0 ? latest : random_size();
  openreg_block *block;
  assert_ok(openreg_mempool_set_current(device, pool < POOLS ? mempools[pool] : 0));
  openreg_status status = openreg_block_allocate(device, stream, requested, &block);
  if (status != OPENREG_OK) {
    assert_int_equal(status, OPENREG_OUT_OF_MEMORY);
    refusals[device]++;
    return;
  }
  struct live new = {.block = block,
                     .from = block->address,
                     .to = (char *)block->address + block->bytes,
                     .requested = requested,
                     .device = device};
  assert_true(block->bytes >= requested && block->bytes % 512 == 0);
  assert_int_equal(block->requested_bytes, requested);
  assert_int_equal(block->stream, stream);
  assert_int_equal((uintptr_t) new.from % 512, 0);
  assert_int_equal(openreg_arena_device_of(new.from), device);
  assert_int_equal(openreg_arena_device_of(new.to - 1), device);
  assert_alone(&new);
  live[count++] = new;
}

/* The program frees its blocks; another process releases its own. */
static void release_block(int number) {
  struct live *one = &live[number];
  latest = one->requested;
  if (one->is_freed) {
    *one = live[--count];
    return;
  }
  assert_ptr_equal(one->block->address, one->from);
  assert_ptr_equal(openreg_block_find(one->from), one->block);
  if (below(4) == 0)
    assert_ok(openreg_block_record_stream(one->block, 17));
  one->is_freed = true;
  openreg_block *block = one->block;
  char *from = one->from;
  if (!one->is_exported)
    *one = live[--count];
  openreg_block_free(block);
  assert_null(openreg_block_find(from));
}

static void export_one(struct live *one) {
  openreg_ipc_handle handle;
  if (one->is_freed)
    return;
  assert_ok(openreg_block_export(one->block, one->block->stream, &handle));
  one->is_exported = true;
}

static void renew_a_mempool(void) {
  int pool = below(POOLS);
  for (int device = 0; device < TEST_DEVICES; device++)
    assert_ok(openreg_mempool_set_current(device, 0));
  assert_ok(openreg_mempool_release(mempools[pool]));
  if (below(2) == 0)
    assert_ok(openreg_mempool_empty(mempools[pool]));
  mempools[pool] = make_mempool(pool);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static void assert_stats_are_the_models(int device) {
  int64_t blocks = 0, bytes = 0, requested = 0;
  for (int i = 0; i < count; i++)
    if (live[i].device == device) {
      blocks++;
      bytes += live[i].to - live[i].from;
      requested += (int64_t)live[i].requested;
    }
  assert_ok(openreg_memory_collect_shared(device));
  openreg_memory_stats stats = stats_of(device);
  assert_int_equal(stats.allocation[ALL].current, blocks);
  assert_int_equal(stats.allocation[ALL].current,
                   stats.allocation[ALL].allocated - stats.allocation[ALL].freed);
  assert_int_equal(stats.allocated_bytes[ALL].current, bytes);
  assert_true(stats.requested_bytes[ALL].current >= requested);
  assert_int_equal(stats.ooms, refusals[device]);
  assert_int_equal(stats.reserved_bytes[ALL].current, CAPACITY - ledger_free(device));
  assert_int_equal(stats.reserved_bytes[ALL].current % (2 * MIB), 0);
  assert_true(stats.reserved_bytes[ALL].current >=
              stats.active_bytes[ALL].current + stats.inactive_split_bytes[ALL].current);
}

/* Afterwards no block waits for a stream, and only kept pools have whole free segments. */
static void empty_and_compare(int device) {
  assert_ok(openreg_cache_empty(device));
  openreg_memory_stats stats = stats_of(device);
  assert_memory_equal(&stats.active, &stats.allocation, sizeof stats.active[0]);
  assert_int_equal(stats.active[ALL].current, stats.allocation[ALL].current);
  assert_int_equal(stats.active_bytes[ALL].current, stats.allocated_bytes[ALL].current);
}

static void look_at_everything(int operation) {
  for (int device = 0; device < TEST_DEVICES; device++) {
    assert_stats_are_the_models(device);
    if (operation % WALK != 0)
      continue;
    if (!openreg_memory_is_valid(device))
      fail_msg("after %d operations: %s", operation, openreg_last_error());
    assert_snapshot_agrees(device);
  }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void do_something(int operation, int most, const openreg_memory_settings *settings) {
  bool filling = operation / 3000 % 2 == 0; /* then draining, so that every level occurs */
  int drawn = below(2048);
  if (drawn < 40 && count > 0) {
    export_one(&live[below(count)]);
  } else if (drawn < 42) {
    renew_a_mempool();
  } else if (drawn < 43) {
    empty_and_compare(below(TEST_DEVICES));
  } else if (drawn < 44 && settings->expandable_segments) {
    openreg_memory_settings changed = *settings;
    changed.expandable_segments = below(2);
    set_settings(changed);
  } else if (count == 0 || (below(8) < (filling ? 5 : 3) && count < most)) {
    allocate();
  } else {
    release_block(below(count));
  }
}

static void run(uint64_t seed, int most, const openreg_memory_settings *settings) {
  state_of_random = seed;
  count = 0;
  latest = 0;
  set_settings(*settings);
  for (int pool = 0; pool < POOLS; pool++)
    mempools[pool] = make_mempool(pool);
  memset(refusals, 0, sizeof refusals);
  for (int i = 0; i < OPERATIONS; i++) {
    do_something(i, most, settings);
    if (i % SAMPLE == 0)
      look_at_everything(i);
  }
  while (count > 0)
    release_block(0);
  for (int pool = 0; pool < POOLS; pool++)
    for (int device = 0; device < TEST_DEVICES; device++)
      assert_ok(openreg_mempool_set_current(device, 0));
  for (int pool = 0; pool < POOLS; pool++)
    assert_ok(openreg_mempool_release(mempools[pool]));
  look_at_everything(0);
  for (int device = 0; device < TEST_DEVICES; device++) {
    empty_and_compare(device);
    assert_int_equal(ledger_free(device), CAPACITY);
    assert_true(stats_of(device).allocation[ALL].allocated > OPERATIONS / 10);
  }
}

static void blocks_never_overlap(void **state) {
  (void)state;
  const openreg_memory_settings settings = default_settings();
  run(88172645463325252u, 24, &settings);
}

static void blocks_never_overlap_when_memory_runs_out_often(void **state) {
  (void)state;
  const openreg_memory_settings settings = default_settings();
  run(362436069u, MOST, &settings);
  assert_true(refusals[0] > 100 && refusals[1] > 100);
}

static void blocks_never_overlap_with_expandable_segments_on_and_off(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  run(521288629u, 100, &settings);
  assert_true(refusals[0] > 10 && refusals[1] > 10);
}

static void blocks_never_overlap_with_a_limit_and_every_setting(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 20 * MIB;
  settings.garbage_collection_threshold = 0.5;
  for (int i = 0; i < OPENREG_ROUNDUP_INTERVALS; i++)
    settings.roundup_power2_divisions[i] = 8;
  for (int device = 0; device < TEST_DEVICES; device++)
    assert_ok(openreg_memory_set_fraction(device, 0.9));
  run(88675123u, 60, &settings);
  assert_true(refusals[0] > 10 && refusals[1] > 10);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(blocks_never_overlap),
      ON_EMPTY_DEVICES(blocks_never_overlap_when_memory_runs_out_often),
      ON_EMPTY_DEVICES(blocks_never_overlap_with_expandable_segments_on_and_off),
      ON_EMPTY_DEVICES(blocks_never_overlap_with_a_limit_and_every_setting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
