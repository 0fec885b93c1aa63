/* test_pinned.c: pinned host memory: sizes, reuse, lookup by address, and statistics. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void new_memory_is_page_aligned_and_zeroed(void **state) {
  (void)state;
  static const size_t requests[] = {1, 100, 4096, 4097, 3 * MIB};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    char *address = pin(requests[i]);
    assert_int_equal((uintptr_t)address % (size_t)sysconf(_SC_PAGESIZE), 0);
    for (size_t at = 0; at < requests[i]; at++)
      if (address[at] != 0)
        fail_msg("byte %zu of %zu is %d", at, requests[i], address[at]);
    memset(address, 0x5A, requests[i]);
    openreg_pinned_free(address);
  }
}

static void sizes_are_rounded_up_to_powers_of_two(void **state) {
  (void)state;
  static const size_t requests[] = {1, 2, 3, 100, 128, 129, 4097, MIB, MIB + 1};
  static const size_t sizes[] = {1, 2, 4, 128, 128, 256, 8192, MIB, 2 * MIB};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    char *address = pin(requests[i]);
    assert_int_equal(pinned_stats().active_bytes.current, sizes[i]);
    openreg_pinned_free(address);
  }
}

static void zero_bytes_have_no_address_and_are_not_counted(void **state) {
  (void)state;
  void *address = state;
  assert_ok(openreg_pinned_allocate(0, &address));
  assert_null(address);
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.active_requests, 0, 0, 0, 0);
  assert_stat(stats.allocations, 0, 0, 0, 0);
  openreg_pinned_free(address);
}

static void a_freed_block_is_reused_by_its_rounded_size(void **state) {
  (void)state;
  char *address = pin(5000);
  openreg_pinned_free(address);
  assert_ptr_equal(pin(8192), address);
  openreg_pinned_free(address);
  assert_ptr_equal(pin(4097), address);
  assert_int_equal(pinned_stats().allocations.allocated, 1);
  openreg_pinned_free(address);
}

static void the_block_freed_last_is_used_first(void **state) {
  (void)state;
  char *one = pin(MIB), *other = pin(MIB);
  openreg_pinned_free(one);
  openreg_pinned_free(other);
  assert_ptr_equal(pin(MIB), other);
  assert_ptr_equal(pin(MIB), one);
  openreg_pinned_free(one);
  openreg_pinned_free(other);
}

static void other_sizes_get_blocks_of_their_own(void **state) {
  (void)state;
  char *large = pin(MIB);
  openreg_pinned_free(large);
  char *half = pin(MIB / 2), *twice = pin(2 * MIB);
  assert_true(half + MIB / 2 <= large || large + MIB <= half);
  assert_true(twice + 2 * MIB <= large || large + MIB <= twice);
  assert_int_equal(pinned_stats().allocations.current, 3);
  openreg_pinned_free(half);
  openreg_pinned_free(twice);
}

static void every_address_of_an_allocated_block_is_known(void **state) {
  (void)state;
  char *below = pin(5000), *address = pin(5000), *above = pin(5000);
  assert_true(openreg_pinned_contains(address));
  assert_true(openreg_pinned_contains(address + 1));
  assert_true(openreg_pinned_contains(address + 8191)); /* the rounded size counts */
  openreg_pinned_free(below);
  openreg_pinned_free(above);
  assert_false(openreg_pinned_contains(address - 1));
  assert_false(openreg_pinned_contains(address + 8192));
  assert_true(openreg_pinned_contains(address));
  openreg_pinned_free(address);
}

static void a_tiny_block_ends_within_its_page(void **state) {
  (void)state;
  char *address = pin(5);
  assert_true(openreg_pinned_contains(address + 7));
  assert_false(openreg_pinned_contains(address + 8));
  openreg_pinned_free(address);
}

static void a_cached_block_is_not_known(void **state) {
  (void)state;
  char *address = pin(MIB);
  openreg_pinned_free(address);
  assert_false(openreg_pinned_contains(address));
  assert_ptr_equal(pin(MIB), address);
  assert_true(openreg_pinned_contains(address));
  openreg_pinned_free(address);
}

static void other_memory_is_not_known(void **state) {
  (void)state;
  char *address = pin(MIB), *heap = malloc(MIB);
  assert_false(openreg_pinned_contains(NULL));
  assert_false(openreg_pinned_contains(&address));
  assert_false(openreg_pinned_contains(heap));
  assert_false(openreg_pinned_contains((void *)UINTPTR_MAX));
  free(heap);
  openreg_pinned_free(address);
}

static void freeing_null_is_allowed(void **state) {
  (void)state;
  openreg_pinned_free(NULL);
}

static void emptying_releases_cached_blocks_only(void **state) {
  (void)state;
  char *kept = pin(100), *small = pin(100), *large = pin(3 * MIB);
  memset(kept, 7, 100);
  openreg_pinned_free(small);
  openreg_pinned_free(large);
  assert_true(is_mapped(small) && is_mapped(large));
  assert_ok(openreg_pinned_empty_cache());
  assert_false(is_mapped(small));
  assert_false(is_mapped(large));
  for (int i = 0; i < 100; i++)
    assert_int_equal(kept[i], 7);
  assert_true(openreg_pinned_contains(kept));
  openreg_pinned_free(kept);
}

static void statistics_follow_allocations_and_frees(void **state) {
  (void)state;
  char *small = pin(100), *large = pin(5000);
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.active_requests, 2, 2, 2, 0);
  assert_stat(stats.active_bytes, 8320, 8320, 8320, 0);
  assert_stat(stats.allocations, 2, 2, 2, 0);
  assert_stat(stats.allocated_bytes, 8320, 8320, 8320, 0);
  openreg_pinned_free(large);
  large = pin(8000);
  openreg_pinned_free(small);
  stats = pinned_stats();
  assert_stat(stats.active_requests, 1, 2, 3, 2);
  assert_stat(stats.active_bytes, 8192, 8320, 16512, 8320);
  assert_stat(stats.allocations, 2, 2, 2, 0);
  assert_stat(stats.allocated_bytes, 8320, 8320, 8320, 0);
  assert_ok(openreg_pinned_empty_cache());
  stats = pinned_stats();
  assert_stat(stats.active_requests, 1, 2, 3, 2);
  assert_stat(stats.allocations, 1, 2, 2, 1);
  assert_stat(stats.allocated_bytes, 8192, 8320, 8320, 128);
  openreg_pinned_free(large);
}

static void peaks_are_added_up_over_the_powers_of_two(void **state) {
  (void)state;
  openreg_pinned_free(pin(100));
  openreg_pinned_free(pin(5000));
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.active_requests, 0, 2, 2, 2); /* though there was only one at a time */
  assert_stat(stats.active_bytes, 0, 8320, 8320, 8320);
  openreg_pinned_reset_peak();
  stats = pinned_stats();
  assert_stat(stats.active_requests, 0, 0, 2, 2);
  assert_stat(stats.active_bytes, 0, 0, 8320, 8320);
}

static void statistics_are_reset_in_two_ways(void **state) {
  (void)state;
  char *kept = pin(100);
  openreg_pinned_free(pin(5000));
  openreg_pinned_reset_peak();
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.active_bytes, 128, 128, 8320, 8192);
  assert_stat(stats.allocated_bytes, 8320, 8320, 8320, 0);
  openreg_pinned_reset_accumulated();
  stats = pinned_stats();
  assert_stat(stats.active_requests, 1, 1, 0, 0);
  assert_stat(stats.active_bytes, 128, 128, 0, 0);
  assert_stat(stats.allocations, 2, 2, 0, 0);
  assert_stat(stats.allocated_bytes, 8320, 8320, 0, 0);
  openreg_pinned_free(kept);
}

static void times_count_system_calls_only(void **state) {
  (void)state;
  openreg_pinned_free(pin(4096));
  openreg_pinned_free(pin(4096)); /* the same block: no system call */
  openreg_pinned_stats stats = pinned_stats();
  assert_int_equal(stats.host_alloc_time.count, 1);
  assert_int_equal(stats.host_free_time.count, 0);
  assert_ok(openreg_pinned_empty_cache());
  openreg_pinned_free(pin(8192));
  stats = pinned_stats();
  assert_int_equal(stats.host_alloc_time.count, 2);
  assert_int_equal(stats.host_free_time.count, 1);
  openreg_duration time = stats.host_alloc_time;
  assert_true(0 <= time.min && time.min <= time.max && time.max <= time.total);
  openreg_pinned_reset_accumulated();
  time = pinned_stats().host_alloc_time;
  assert_int_equal(time.count + time.total, 0);
  openreg_pinned_reset_peak();
  time = pinned_stats().host_alloc_time;
  assert_int_equal(time.min + time.max, 0);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  assert_status(openreg_pinned_allocate(100, NULL), OPENREG_INVALID_ARGUMENT);
  assert_error("openreg_pinned_allocate: address is NULL");
  assert_status(openreg_pinned_get_stats(NULL), OPENREG_INVALID_ARGUMENT);
  assert_error("openreg_pinned_get_stats: stats is NULL");
}

static void more_than_the_host_has_fails(void **state) {
  (void)state;
  static const size_t requests[] = {(size_t)1 << 60, (size_t)1 << 63, ((size_t)1 << 63) + 1,
                                    SIZE_MAX};
  for (int i = 0; i < 4; i++) {
    void *address = state;
    assert_status(openreg_pinned_allocate(requests[i], &address), OPENREG_OUT_OF_MEMORY);
    assert_error(i < 2 ? "out of host memory for a pinned block" : "exceed the address space");
    assert_ptr_equal(address, state);
  }
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.allocations, 0, 0, 0, 0);
}

/* ---- against a model ------------------------------------------------------------------------- */

enum { MOST = 1500, OPERATIONS = 20000 }; /* more blocks than fit in the first directory */

struct held {
  char *address;
  size_t bytes;
};

static uint64_t state_of_random = 88172645463325252u;

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003). */
static uint64_t next_random(void) {
  state_of_random ^= state_of_random << 13;
  state_of_random ^= state_of_random >> 7;
  state_of_random ^= state_of_random << 17;
  return state_of_random;
}

static void assert_known_as_modelled(const struct held *held, int count, const char *address) {
  bool known = false;
  for (int i = 0; i < count; i++)
    known |= held[i].address <= address && address < held[i].address + held[i].bytes;
  assert_int_equal(openreg_pinned_contains(address), known);
}

static void blocks_are_known_as_a_model_knows_them(void **state) {
  (void)state;
  static struct held held[MOST];
  int count = 0;
  for (int i = 0; i < OPERATIONS; i++) {
    bool filling = i / 4000 % 2 == 0;
    if (count == 0 || (count < MOST && next_random() % 8 < (filling ? 6 : 2))) {
      size_t bytes = (size_t)1 << next_random() % 15;
      held[count++] = (struct held){pin(bytes), bytes};
    } else {
      struct held *freed = &held[next_random() % (uint64_t)count];
      openreg_pinned_free(freed->address);
      assert_false(openreg_pinned_contains(freed->address));
      *freed = held[--count];
    }
    if (count > 0) {
      const struct held *some = &held[next_random() % (uint64_t)count];
      assert_known_as_modelled(held, count, some->address + some->bytes - 1);
      assert_known_as_modelled(held, count, some->address + next_random() % 65536);
    }
    if (next_random() % 1024 == 0)
      assert_ok(openreg_pinned_empty_cache());
    assert_int_equal(pinned_stats().active_requests.current, count);
  }
  assert_true(pinned_stats().allocations.peak > 512);
  while (count > 0)
    openreg_pinned_free(held[--count].address);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 5000 };

static atomic_int errors;

static void *work(void *argument) {
  unsigned random = (unsigned)(uintptr_t)argument;
  for (int i = 0; i < ROUNDS; i++) {
    size_t bytes = (size_t)1 << rand_r(&random) % 14;
    void *address;
    bool good = openreg_pinned_allocate(bytes, &address) == OPENREG_OK;
    if (good) {
      memset(address, (int)(uintptr_t)argument, bytes);
      good = openreg_pinned_contains(address) &&
             ((char *)address)[bytes - 1] == (char)(uintptr_t)argument;
      openreg_pinned_free(address);
    }
    if (i % 500 == 0)
      good = good && openreg_pinned_empty_cache() == OPENREG_OK;
    if (!good)
      atomic_fetch_add(&errors, 1);
  }
  return NULL;
}

static void threads_share_the_pool(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(atomic_load(&errors), 0);
  assert_int_equal(pinned_stats().active_requests.freed, THREADS * ROUNDS);
}

static void no_device_was_initialized(void **state) {
  (void)state;
  assert_false(openreg_is_initialized());
}

#define ON_EMPTY_POOL(test) cmocka_unit_test_setup_teardown(test, pinned_reset, pinned_all_freed)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_POOL(new_memory_is_page_aligned_and_zeroed),
      ON_EMPTY_POOL(sizes_are_rounded_up_to_powers_of_two),
      ON_EMPTY_POOL(zero_bytes_have_no_address_and_are_not_counted),
      ON_EMPTY_POOL(a_freed_block_is_reused_by_its_rounded_size),
      ON_EMPTY_POOL(the_block_freed_last_is_used_first),
      ON_EMPTY_POOL(other_sizes_get_blocks_of_their_own),
      ON_EMPTY_POOL(every_address_of_an_allocated_block_is_known),
      ON_EMPTY_POOL(a_tiny_block_ends_within_its_page),
      ON_EMPTY_POOL(a_cached_block_is_not_known),
      ON_EMPTY_POOL(other_memory_is_not_known),
      ON_EMPTY_POOL(freeing_null_is_allowed),
      ON_EMPTY_POOL(emptying_releases_cached_blocks_only),
      ON_EMPTY_POOL(statistics_follow_allocations_and_frees),
      ON_EMPTY_POOL(peaks_are_added_up_over_the_powers_of_two),
      ON_EMPTY_POOL(statistics_are_reset_in_two_ways),
      ON_EMPTY_POOL(times_count_system_calls_only),
      ON_EMPTY_POOL(bad_arguments_are_refused),
      ON_EMPTY_POOL(more_than_the_host_has_fails),
      ON_EMPTY_POOL(blocks_are_known_as_a_model_knows_them),
      ON_EMPTY_POOL(threads_share_the_pool),
      cmocka_unit_test(no_device_was_initialized),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
