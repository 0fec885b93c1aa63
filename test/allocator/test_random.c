/* test_random.c: 200000 operations at random against a model that is too simple to be wrong, an
 * array of live intervals. The same seed gives the same operations. No observer looks on, as in
 * test_model.c, which does more: the engine takes shorter ways then.
 */
#include "support.h"

enum { OPERATIONS = 200000, MOST = 400, SAMPLE = 64, WALK = 1000 };

struct live {
  openreg_block *block;
  char *from, *to;
  size_t bytes, requested;
  int stream;
};

struct model {
  struct live live[MOST];
  int count;
  size_t bytes, requested, all_bytes, all_requested;
  int64_t allocated, freed, failed;
  size_t latest; /* the request that was freed last */
};

static uint64_t state_of_random;

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003). */
static uint64_t next_random(void) {
  state_of_random ^= state_of_random << 13;
  state_of_random ^= state_of_random >> 7;
  state_of_random ^= state_of_random << 17;
  return state_of_random;
}

static size_t random_size(void) {
  static const size_t limits[] = {512, 4 * KIB, 64 * KIB, MIB, MIB, 6 * MIB};
  return 1 + next_random() % limits[next_random() % 6];
}

static void model_allocate(struct model *model, int device) {
  int stream = (int)(next_random() % 3) * 32; /* the first and last of all among them */
  size_t requested = model->latest && next_random() % 4 == 0 ? model->latest : random_size();
  openreg_block *block;
  openreg_status status = openreg_block_allocate(device, stream, requested, &block);
  if (status != OPENREG_OK) {
    assert_int_equal(status, OPENREG_OUT_OF_MEMORY);
    model->failed++;
    return;
  }
  size_t bytes = (requested + 511) / 512 * 512;
  struct live new = {block, block->address, (char *)block->address + bytes,
                     bytes, requested,      stream};
  assert_int_equal(block->bytes, bytes);
  assert_int_equal(block->requested_bytes, requested);
  assert_int_equal(block->stream, stream);
  assert_int_equal((uintptr_t) new.from % 512, 0);
  assert_int_equal(openreg_arena_device_of(new.from), device);
  assert_int_equal(openreg_arena_device_of(new.to - 1), device);
  for (int i = 0; i < model->count; i++)
    if (new.from < model->live[i].to && model->live[i].from < new.to)
      fail_msg("%p overlaps %p", (void *)new.from, (void *)model->live[i].from);
  model->live[model->count++] = new;
  model->bytes += bytes;
  model->requested += requested;
  model->all_bytes += bytes;
  model->all_requested += requested;
  model->allocated++;
}

static void model_free(struct model *model) {
  struct live *live = &model->live[next_random() % (uint64_t)model->count];
  assert_ptr_equal(live->block->address, live->from);
  assert_ptr_equal(openreg_block_find(live->from), live->block);
  if (next_random() % 4 == 0)
    assert_ok(openreg_block_record_stream(live->block, 17));
  openreg_block_free(live->block);
  assert_null(openreg_block_find(live->from));
  model->bytes -= live->bytes;
  model->requested -= live->requested;
  model->latest = live->requested;
  model->freed++;
  *live = model->live[--model->count];
}

static void assert_stats_are_the_models(const struct model *model, int device) {
  openreg_memory_stats stats = stats_of(device);
  const openreg_stat *bytes = &stats.allocated_bytes[OPENREG_POOL_ALL];
  assert_int_equal(stats.allocation[0].current, model->count);
  assert_int_equal(stats.allocation[0].allocated, model->allocated);
  assert_int_equal(stats.allocation[0].freed, model->freed);
  assert_int_equal(bytes->current, model->bytes);
  assert_int_equal(bytes->allocated, model->all_bytes);
  assert_int_equal(bytes->freed, model->all_bytes - model->bytes);
  assert_int_equal(stats.requested_bytes[0].current, model->requested);
  assert_int_equal(stats.requested_bytes[0].allocated, model->all_requested);
  assert_memory_equal(&stats.active, &stats.allocation, sizeof stats.active);
  assert_memory_equal(&stats.active_bytes, &stats.allocated_bytes, sizeof stats.active_bytes);
  assert_int_equal(stats.ooms, model->failed);
  assert_int_equal(stats.reserved_bytes[0].current % (2 * MIB), 0);
  assert_int_equal(stats.reserved_bytes[0].current, CAPACITY - ledger_free(device));
  assert_int_equal(stats.reserved_bytes[0].current,
                   stats.reserved_bytes[1].current + stats.reserved_bytes[2].current);
  assert_true(stats.reserved_bytes[0].current >=
              stats.active_bytes[0].current + stats.inactive_split_bytes[0].current);
}

/* After emptying, what is reserved is exactly what the equation in allocator.h leaves. */
static void empty_and_compare(int device) {
  assert_ok(openreg_cache_empty(device));
  openreg_memory_stats stats = stats_of(device);
  for (int kind = 0; kind < OPENREG_POOL_KINDS; kind++)
    assert_int_equal(stats.reserved_bytes[kind].current,
                     stats.active_bytes[kind].current + stats.inactive_split_bytes[kind].current);
}

static void run(int device, uint64_t seed, int most) {
  static struct model model;
  model = (struct model){0};
  state_of_random = seed;
  for (int i = 0; i < OPERATIONS; i++) {
    /* The model fills and drains in turns, so that every level is seen. */
    bool filling = i / 3000 % 2 == 0;
    bool allocate = next_random() % 8 < (filling ? 5 : 3);
    if (model.count == 0 || (allocate && model.count < most))
      model_allocate(&model, device);
    else
      model_free(&model);
    if (i % SAMPLE == 0)
      assert_stats_are_the_models(&model, device);
    if (i % WALK == 0 && !openreg_memory_is_valid(device))
      fail_msg("after %d operations: %s", i, openreg_last_error());
    if (next_random() % 2048 == 0)
      empty_and_compare(device);
  }
  assert_true(model.allocated > OPERATIONS / 3);
  while (model.count > 0)
    model_free(&model);
  assert_stats_are_the_models(&model, device);
  empty_and_compare(device);
  assert_int_equal(ledger_free(device), CAPACITY);
}

static void blocks_never_overlap_and_figures_are_exact(void **state) {
  (void)state;
  run(0, 88172645463325252u, 60);
}

static void the_same_holds_when_memory_runs_out_all_the_time(void **state) {
  (void)state;
  run(1, 362436069u, MOST);
  assert_true(stats_of(1).ooms > 100);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(blocks_never_overlap_and_figures_are_exact),
      ON_EMPTY_DEVICES(the_same_holds_when_memory_runs_out_all_the_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
