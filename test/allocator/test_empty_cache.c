/* test_empty_cache.c: releasing memory while other threads work: nobody waits forever, and no
 * memory is released that work still writes to.
 *
 * The linker replaces openreg_device_drain, so that things can happen exactly while a cache is
 * emptied.
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_int emptying; /* waits so far */
static openreg_block *block;
static openreg_status (*after_wait)(int waits);

openreg_status __real_openreg_device_drain(int device);
openreg_status __wrap_openreg_device_drain(int device);

openreg_status __wrap_openreg_device_drain(int device) {
  int waits = atomic_fetch_add(&emptying, 1) + 1;
  openreg_status status = __real_openreg_device_drain(device);
  if (status == OPENREG_OK && after_wait)
    status = after_wait(waits);
  return status;
}

static int not_emptying(void **state) {
  after_wait = NULL;
  block = NULL;
  int result = devices_reset(state);
  atomic_store(&emptying, 0);
  return result;
}

static void wait_for_emptying(int waits) {
  while (atomic_load(&emptying) < waits)
    ;
}

static openreg_status free_when_emptied(void *data) {
  (void)data;
  wait_for_emptying(1);
  openreg_block_free(block);
  return OPENREG_OK;
}

static void work_may_free_memory_while_it_is_waited_for(void **state) {
  (void)state;
  block = take(0, 0, 12 * MIB);
  openreg_block_free(take(0, 1, 12 * MIB)); /* without memory to release there is no wait */
  assert_ok(openreg_stream_launch(0, 3, &free_when_emptied, NULL));
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
}

static atomic_int begun;

static void *allocate_inline_when_emptied(void *status) {
  *(openreg_status *)status = openreg_stream_try_begin_inline(0, 0);
  atomic_store(&begun, 1);
  wait_for_emptying(1);
  if (*(openreg_status *)status == OPENREG_OK)
    *(openreg_status *)status = openreg_block_allocate(0, 0, 512, &block);
  openreg_stream_end_inline(0, 0);
  return NULL;
}

static void inline_work_may_allocate_while_it_is_waited_for(void **state) {
  (void)state;
  pthread_t thread;
  openreg_status status;
  atomic_store(&begun, 0);
  openreg_block_free(take(0, 0, 8 * MIB));
  assert_int_equal(pthread_create(&thread, NULL, &allocate_inline_when_emptied, &status), 0);
  while (!atomic_load(&begun))
    ;
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_ok(status);
  assert_int_equal(ledger_free(0), CAPACITY - 2 * MIB);
  openreg_block_free(block);
}

static void a_request_of_inline_work_may_empty_the_cache(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 40 * MIB));
  assert_ok(openreg_stream_try_begin_inline(0, 0));
  openreg_block *other = take(0, 1, 40 * MIB);
  openreg_stream_end_inline(0, 0);
  openreg_block_free(other);
}

static openreg_status write_when_emptied_again(void *address) {
  wait_for_emptying(2);
  *(char *)openreg_kernel_view(address) = 1;
  return OPENREG_OK;
}

static openreg_status end_when_emptied(void *data) {
  (void)data;
  wait_for_emptying(1);
  return OPENREG_OK;
}

static openreg_status queue_and_free(int waits) {
  if (waits > 1)
    return OPENREG_OK;
  openreg_status status = openreg_stream_launch(0, 0, &write_when_emptied_again, block->address);
  openreg_block_free(block);
  return status;
}

/* After the streams have been drained, the block is freed while work that writes to it is queued.
 */
static void memory_that_new_work_writes_to_is_released_after_it(void **state) {
  (void)state;
  unsigned char resident;
  block = take(0, 0, 2 * MIB);
  char *address = block->address;
  openreg_block_free(take(0, 1, 512));
  assert_ok(openreg_stream_launch(0, 3, &end_when_emptied, NULL));
  after_wait = queue_and_free;
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(atomic_load(&emptying), 2);
  assert_int_equal(ledger_free(0), CAPACITY);
  assert_int_equal(mincore(openreg_kernel_view(address), (size_t)sysconf(_SC_PAGESIZE), &resident),
                   0);
  assert_int_equal(resident & 1, 0); /* it was written to before */
}

/* ---- other operations that release memory ---------------------------------------------------- */

/* Stream 3 works until the device is drained. */
static void keep_the_device_busy(void) {
  assert_ok(openreg_stream_launch(0, 3, &end_when_emptied, NULL));
}

static void garbage_is_released_when_the_device_is_idle(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.garbage_collection_threshold = 0.5;
  set_settings(settings);
  assert_ok(openreg_memory_set_fraction(0, 0.75));
  openreg_block_free(take(0, 0, 30 * MIB));
  keep_the_device_busy();
  openreg_block *other = take(0, 1, 12 * MIB);
  assert_int_equal(atomic_load(&emptying), 1);
  assert_int_equal(ledger_free(0), CAPACITY - 12 * MIB);
  assert_int_equal(stats_of(0).stream_syncs, 0);
  openreg_block_free(other);
}

static void oversize_blocks_are_released_when_the_device_is_idle(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.max_split_bytes = 20 * MIB;
  set_settings(settings);
  openreg_block_free(take(0, 0, 40 * MIB));
  openreg_block *held = take(0, 0, 10 * MIB);
  keep_the_device_busy();
  openreg_block *other = take(0, 0, 20 * MIB);
  assert_int_equal(atomic_load(&emptying), 1);
  assert_int_equal(stats_of(0).alloc_retries, 0);
  openreg_block_free(held);
  openreg_block_free(other);
}

static void pages_are_unmapped_when_the_device_is_idle(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  openreg_block_free(take(0, 0, 30 * MIB));
  keep_the_device_busy();
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(atomic_load(&emptying), 1);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void a_request_that_the_cache_serves_does_not_wait(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  keep_the_device_busy();
  openreg_block_free(take(0, 0, 1024));
  openreg_block_free(take(0, 0, 3 * MIB)); /* nor does one that needs a segment */
  assert_int_equal(atomic_load(&emptying), 0);
  atomic_store(&emptying, 1);
  assert_ok(openreg_stream_synchronize(0, 3));
}

static atomic_int rounds;

static openreg_status end_after_the_next_wait(void *data) {
  (void)data;
  wait_for_emptying(atomic_load(&rounds) + 1);
  return OPENREG_OK;
}

/* As another thread could: the stream of the cached memory has new work at once. */
static openreg_status submit_again(int waits) {
  atomic_store(&rounds, waits);
  return openreg_stream_launch(0, 0, &end_after_the_next_wait, NULL);
}

static void emptying_gives_up_on_a_stream_that_never_is_idle(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512));
  assert_ok(submit_again(0));
  after_wait = submit_again;
  assert_ok(openreg_cache_empty(0));
  assert_true(openreg_memory_is_valid(0));
  assert_int_equal(ledger_free(0), CAPACITY - 2 * MIB);
  after_wait = NULL;
  atomic_store(&emptying, 1000);
  assert_ok(openreg_stream_synchronize(0, 0));
}

#define UNDISTURBED(test) cmocka_unit_test_setup_teardown(test, not_emptying, devices_check)

int main(void) {
  configure();
  alarm(600); /* a hang fails the test */
  const struct CMUnitTest tests[] = {
      UNDISTURBED(work_may_free_memory_while_it_is_waited_for),
      UNDISTURBED(inline_work_may_allocate_while_it_is_waited_for),
      UNDISTURBED(a_request_of_inline_work_may_empty_the_cache),
      UNDISTURBED(memory_that_new_work_writes_to_is_released_after_it),
      UNDISTURBED(garbage_is_released_when_the_device_is_idle),
      UNDISTURBED(oversize_blocks_are_released_when_the_device_is_idle),
      UNDISTURBED(pages_are_unmapped_when_the_device_is_idle),
      UNDISTURBED(a_request_that_the_cache_serves_does_not_wait),
      UNDISTURBED(emptying_gives_up_on_a_stream_that_never_is_idle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
