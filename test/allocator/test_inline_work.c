/* test_inline_work.c: memory of queued work is not given to inline work that runs before it.
 *
 * Inline work allocates while it runs. Meanwhile another thread may queue work behind it and free
 * the memory of that work: the order of the frees is not the order of the work.
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

enum { STREAM = OPENREG_STREAM_DEFAULT, BYTES = 4 * KIB, WRITTEN = 0x5A };

static atomic_int seen;

static openreg_status look(void *address) {
  atomic_store(&seen, *(unsigned char *)openreg_kernel_view(address));
  return OPENREG_OK;
}

/* Queues a reader of a block and frees the block at once, as a program does. */
static void *queue_and_free(void *data) {
  openreg_block *block = data;
  assert_ok(openreg_stream_launch(0, STREAM, &look, block->address));
  openreg_block_free(block);
  return NULL;
}

static void queue_and_free_elsewhere(openreg_block *block) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, &queue_and_free, block), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static void start_the_worker(void) {
  openreg_block *block = take(0, STREAM, BYTES);
  queue_and_free_elsewhere(block);
  assert_ok(openreg_stream_synchronize(0, STREAM));
}

static void inline_work_does_not_get_what_queued_work_reads(void **state) {
  (void)state;
  start_the_worker();
  openreg_block *block = take(0, STREAM, BYTES);
  void *address = block->address;
  assert_ok(openreg_fill(address, WRITTEN, BYTES));
  assert_ok(openreg_stream_try_begin_inline(0, STREAM));
  queue_and_free_elsewhere(block);
  openreg_block *mine = take(0, STREAM, BYTES);
  assert_ptr_not_equal(mine->address, address);
  assert_ok(openreg_fill(mine->address, 0, BYTES));
  openreg_stream_end_inline(0, STREAM);
  assert_ok(openreg_stream_synchronize(0, STREAM));
  assert_int_equal(atomic_load(&seen), WRITTEN);
  openreg_block *again = take(0, STREAM, BYTES); /* now it may be reused */
  assert_ptr_equal(again->address, address);
  openreg_block_free(again);
  openreg_block_free(mine);
}

static void inline_work_gets_back_what_it_frees_itself(void **state) {
  (void)state;
  start_the_worker();
  openreg_block *other = take(0, STREAM, BYTES);
  assert_ok(openreg_stream_try_begin_inline(0, STREAM));
  queue_and_free_elsewhere(other);
  openreg_block *block = take(0, STREAM, BYTES);
  void *address = block->address;
  openreg_block_free(block);
  block = take(0, STREAM, BYTES);
  assert_ptr_equal(block->address, address);
  openreg_block_free(block);
  openreg_stream_end_inline(0, STREAM);
  assert_ok(openreg_stream_synchronize(0, STREAM));
  openreg_block_free(take(0, STREAM, BYTES)); /* processes waiting blocks */
}

static openreg_status wait_until_open(void *open) {
  while (!atomic_load((atomic_int *)open))
    ;
  return OPENREG_OK;
}

static void work_of_a_worker_delays_nothing(void **state) {
  (void)state;
  atomic_int open = 0;
  assert_ok(openreg_stream_launch(0, STREAM, &wait_until_open, &open));
  openreg_block *block = take(0, STREAM, BYTES);
  void *address = block->address;
  assert_ok(openreg_stream_launch(0, STREAM, &look, address));
  openreg_block_free(block);
  block = take(0, STREAM, BYTES); /* for later work of the stream */
  assert_ptr_equal(block->address, address);
  openreg_block_free(block);
  atomic_store(&open, 1);
  assert_ok(openreg_stream_synchronize(0, STREAM));
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(inline_work_does_not_get_what_queued_work_reads),
      ON_EMPTY_DEVICES(inline_work_gets_back_what_it_frees_itself),
      ON_EMPTY_DEVICES(work_of_a_worker_delays_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
