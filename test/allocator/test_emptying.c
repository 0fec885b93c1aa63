/* test_emptying.c: emptying a cache while others work: nobody waits for ever, and no memory goes
 * back that work still writes to.
 *
 * The linker puts openreg_device_drain here, so that things happen just when a cache is emptied.
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_int emptying; /* waits so far */
static openreg_block *block;
static openreg_status (*after_first_wait)(void);

openreg_status __real_openreg_device_drain(int device);
openreg_status __wrap_openreg_device_drain(int device);

openreg_status __wrap_openreg_device_drain(int device) {
  int waits = atomic_fetch_add(&emptying, 1) + 1;
  openreg_status status = __real_openreg_device_drain(device);
  if (status == OPENREG_OK && waits == 1 && after_first_wait)
    status = after_first_wait();
  return status;
}

static int not_emptying(void **state) {
  after_first_wait = NULL;
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
  block = take(0, 0, 4 * MIB);
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
    *(openreg_status *)status = openreg_block_allocate(0, 0, 2 * MIB, &block);
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

static openreg_status queue_and_free(void) {
  openreg_status status = openreg_stream_launch(0, 0, &write_when_emptied_again, block->address);
  openreg_block_free(block);
  return status;
}

/* The block is freed, with work queued that writes to it, when the streams had been waited for. */
static void memory_that_new_work_writes_to_goes_back_after_it(void **state) {
  (void)state;
  unsigned char resident;
  block = take(0, 0, 2 * MIB);
  char *address = block->address;
  after_first_wait = queue_and_free;
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(atomic_load(&emptying), 2);
  assert_int_equal(ledger_free(0), CAPACITY);
  assert_int_equal(mincore(openreg_kernel_view(address), (size_t)sysconf(_SC_PAGESIZE), &resident),
                   0);
  assert_int_equal(resident & 1, 0); /* it was written to before */
}

#define UNDISTURBED(test) cmocka_unit_test_setup_teardown(test, not_emptying, devices_check)

int main(void) {
  configure();
  alarm(600); /* what hangs, fails */
  const struct CMUnitTest tests[] = {
      UNDISTURBED(work_may_free_memory_while_it_is_waited_for),
      UNDISTURBED(inline_work_may_allocate_while_it_is_waited_for),
      UNDISTURBED(a_request_of_inline_work_may_empty_the_cache),
      UNDISTURBED(memory_that_new_work_writes_to_goes_back_after_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
