/* test_counts.c: numbers that others published about CUDA's caching allocator, reproduced with
 * their programs' requests.
 *
 * Each case names its source. Sizes are those of tensors: elements times bytes per element.
 */
#include "support.h"

#include <stdlib.h>

enum { SMALL = OPENREG_POOL_SMALL, LARGE = OPENREG_POOL_LARGE, FLOAT = 4, MOST = 256 };

static openreg_block *held[MOST];
static int count;

/* Returns the number of the block, with which it is freed. */
static int hold(size_t bytes) {
  assert_true(count < MOST);
  held[count] = take(0, 0, bytes);
  return count++;
}

static void release_block(int number) {
  openreg_block_free(held[number]);
  held[number] = NULL;
}

static int64_t allocated(void) {
  return stats_of(0).allocated_bytes[0].current;
}

static int64_t reserved(void) {
  return stats_of(0).reserved_bytes[0].current;
}

static int start(void **state) {
  (void)state;
  assert_ok(openreg_memory_reset_peak(0));
  assert_int_equal(allocated(), 0);
  return 0;
}

static int finish(void **state) {
  (void)state;
  while (count > 0)
    release_block(--count);
  assert_ok(openreg_cache_empty(0));
  assert_true(openreg_memory_is_valid(0));
  return 0;
}

/* "All sizes are rounded to at least 512 bytes": kMinBlockSize of c10's CUDACachingAllocator. A
 * torch.nn.Linear(1000, 1000) is a weight of 4000000 bytes and a bias of 4000. */
static void every_size_is_rounded_up_to_512_bytes(void **state) {
  (void)state;
  static const size_t sizes[][2] = {
      {1, 512},          {4, 512},     {512, 512},         {513, 1024},
      {1024, 1024},      {4000, 4096}, {1 << 20, 1 << 20}, {(1 << 20) + 1, (1 << 20) + 512},
      {4000000, 4000256}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int number = hold(sizes[i][0]);
    assert_int_equal(allocated(), sizes[i][1]);
    release_block(number);
  }
  hold(1000 * 1000 * FLOAT);
  hold(1000 * FLOAT);
  assert_int_equal(allocated(), 4004352);
}

/* https://github.com/pytorch/pytorch/issues/76811: torch.nn.Linear(100, 100) on a device, 40960. */
static void a_linear_layer_of_100_by_100(void **state) {
  (void)state;
  hold(100 * 100 * FLOAT);
  hold(100 * FLOAT);
  assert_int_equal(allocated(), 40960);
}

/* akhilez, "Simple GPU memory allocation experiments every ML Engineer should do" (2024): randn of
 * 1024 floats reserves 2097152 and allocates 4096; when it is deleted, 2097152 and 0. */
static void a_kilobyte_of_floats_that_comes_and_goes(void **state) {
  (void)state;
  assert_int_equal(reserved(), 0);
  int x = hold(1024 * FLOAT);
  assert_int_equal(reserved(), 2097152);
  assert_int_equal(allocated(), 4096);
  release_block(x);
  assert_int_equal(reserved(), 2097152);
  assert_int_equal(allocated(), 0);
}

/* https://github.com/pytorch/pytorch/pull/91854: the memory summary after zeros(1024 * 1024,
 * dtype=torch.uint8): allocated and active 1024 KiB, all of it from the small pool. */
static void one_mebibyte_uses_the_small_pool(void **state) {
  (void)state;
  hold(1024 * 1024);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.allocated_bytes[0].current, 1024 * KIB);
  assert_int_equal(stats.allocated_bytes[LARGE].current, 0);
  assert_int_equal(stats.allocated_bytes[SMALL].current, 1024 * KIB);
  assert_int_equal(stats.active_bytes[0].current, 1024 * KIB);
  assert_int_equal(stats.active_bytes[LARGE].current, 0);
  assert_int_equal(stats.active_bytes[SMALL].current, 1024 * KIB);
}

/* https://github.com/hpcaitech/ColossalAI, colossalai/utils/tensor_detector/readme.md: data of 64,
 * Linear(64, 8), ReLU, Linear(8, 32). 4.5 KB before, 5.5 KB after forward, 6.0 KB with the loss,
 * 10.0 KB after backward, which frees the activation. */
static void a_training_step_of_a_small_perceptron(void **state) {
  (void)state;
  static const size_t leaves[] = {64, 8 * 64, 8, 32 * 8, 32};
  for (int i = 0; i < 5; i++)
    hold(leaves[i] * FLOAT);
  assert_int_equal(allocated(), 4.5 * KIB);
  int activation = hold(8 * FLOAT);
  hold(32 * FLOAT); /* the output */
  assert_int_equal(allocated(), 5.5 * KIB);
  hold(FLOAT); /* the loss */
  assert_int_equal(allocated(), 6.0 * KIB);
  for (int i = 0; i < 5; i++)
    hold(leaves[i] * FLOAT);
  release_block(activation);
  assert_int_equal(allocated(), 10.0 * KIB);
}

/* https://discuss.pytorch.org/t/208243: 40 layers of Linear(4096, 4096) and ReLU on 1024 x 4096
 * floats: 2576.62 MB before forward, 3224.75 MB after it, 3240.75 MB at most during it. The
 * difference holds cuBLAS's workspace, 2 * 4096 + 8 * 16 KiB (torch.backends.cuda documents it). */
static void forty_layers_of_4096_by_4096(void **state) {
  (void)state;
  enum { LAYERS = 40, WIDTH = 4096, ROWS = 1024 };
  static const size_t rows = (size_t)ROWS * WIDTH * FLOAT;
  for (int layer = 0; layer < LAYERS; layer++) {
    hold((size_t)WIDTH * WIDTH * FLOAT);
    hold(WIDTH * FLOAT);
  }
  hold(rows);
  assert_int_equal(allocated(), 2576.625 * MIB);
  hold((2 * 4096 + 8 * 16) * KIB);
  for (int layer = 0; layer < LAYERS; layer++) {
    int sum = hold(rows);
    hold(rows); /* what ReLU makes of it is kept for backward */
    release_block(sum);
  }
  assert_int_equal(allocated(), 3224.75 * MIB);
  assert_int_equal(stats_of(0).allocated_bytes[0].peak, 3240.75 * MIB);
}

#define COUNTED(test) cmocka_unit_test_setup_teardown(test, start, finish)

int main(void) {
  configure();
  setenv("OPENREG_DEVICE_MEMORY", "4G", 1);
  const struct CMUnitTest tests[] = {
      COUNTED(every_size_is_rounded_up_to_512_bytes),    COUNTED(a_linear_layer_of_100_by_100),
      COUNTED(a_kilobyte_of_floats_that_comes_and_goes), COUNTED(one_mebibyte_uses_the_small_pool),
      COUNTED(a_training_step_of_a_small_perceptron),    COUNTED(forty_layers_of_4096_by_4096),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
