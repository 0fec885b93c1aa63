/* test_model.c: a million operations at random, watched by a referee: see referee.h.
 *
 * OPENREG_TEST_SEED gives other operations.
 */
#include "referee.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OPERATIONS = 50000 };
#else
enum { OPERATIONS = 1000000 };
#endif

enum {
  SCAN = 1024, /* operations between two looks at everything */
  DOUBT = 16,  /* refusals of which one is doubted */
  PHASE = 4000 /* operations between filling and draining */
};

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
