/* test_record_stream.c: memory that other streams still use is not used again.
 *
 * Streams of the device layer may be idle whenever they can be looked at, so the linker puts these
 * two functions in front of the layer's: a stream is busy here when the test says so.
 */
#include "support.h"

enum { ALL = OPENREG_POOL_ALL };

static bool busy[OPENREG_STREAMS_PER_DEVICE];
static int queries, waits;
static openreg_status wait_result;

openreg_status __wrap_openreg_stream_query(int device, int stream);
openreg_status __wrap_openreg_stream_drain(int device, int stream);

openreg_status __wrap_openreg_stream_query(int device, int stream) {
  assert_int_equal(device, 0);
  queries++;
  return busy[stream] ? OPENREG_NOT_READY : OPENREG_OK;
}

openreg_status __wrap_openreg_stream_drain(int device, int stream) {
  assert_int_equal(device, 0);
  waits++;
  if (wait_result == OPENREG_OK)
    busy[stream] = false;
  return wait_result;
}

static int idle_streams(void **state) {
  for (int stream = 0; stream < OPENREG_STREAMS_PER_DEVICE; stream++)
    busy[stream] = false;
  wait_result = OPENREG_OK;
  queries = waits = 0;
  return devices_reset(state);
}

/* A block of stream 0 that the streams given use. */
static openreg_block *shared_block(size_t bytes, int one, int other) {
  openreg_block *block = take(0, 0, bytes);
  assert_ok(openreg_block_record_stream(block, one));
  assert_ok(openreg_block_record_stream(block, other));
  return block;
}

static void a_block_whose_streams_are_idle_is_reused_at_once(void **state) {
  (void)state;
  openreg_block *block = shared_block(512, 1, OPENREG_STREAMS_PER_DEVICE - 1);
  void *address = block->address;
  openreg_block_free(block);
  assert_int_equal(queries, 2);
  assert_int_equal(stats_of(0).active[ALL].current, 0);
  block = take(0, 0, 512);
  assert_ptr_equal(block->address, address);
  openreg_block_free(block);
  assert_int_equal(queries, 2); /* what was recorded does not outlive the block */
}

static void a_block_that_a_stream_uses_stays_active(void **state) {
  (void)state;
  busy[7] = true;
  openreg_block *block = shared_block(100, 7, 8);
  void *address = block->address;
  openreg_block_free(block);
  assert_null(openreg_block_find(address));
  assert_true(openreg_memory_is_valid(0));
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocation[ALL], 0, 1, 1, 1);
  assert_stat(stats.allocated_bytes[ALL], 0, 512, 512, 512);
  assert_stat(stats.active[ALL], 1, 1, 1, 0);
  assert_stat(stats.active_bytes[ALL], 512, 512, 512, 0);
  assert_stat(stats.requested_bytes[ALL], 100, 100, 100, 0);
  openreg_block *other = take(0, 0, 512);
  assert_ptr_not_equal(other->address, address);
  openreg_block_free(other);
  busy[7] = false;
  openreg_block_free(take(0, 0, 512));
}

static void a_block_is_reused_when_its_last_stream_has_finished(void **state) {
  (void)state;
  busy[3] = busy[64] = true;
  openreg_block *block = shared_block(512, 3, 64);
  void *address = block->address;
  openreg_block_free(block);
  busy[3] = false;
  block = take(0, 0, 512);
  assert_ptr_not_equal(block->address, address);
  openreg_block_free(block);
  busy[3] = true; /* it finished once: younger work of it does not matter */
  busy[64] = false;
  block = take(0, 0, 512);
  assert_ptr_equal(block->address, address);
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.active[ALL], 1, 2, 3, 2);
  openreg_block_free(block);
}

static void several_blocks_wait_each_for_its_own(void **state) {
  (void)state;
  openreg_block *blocks[3];
  void *addresses[3];
  for (int i = 0; i < 3; i++) {
    busy[i + 1] = true;
    blocks[i] = shared_block((size_t)(i + 1) * 512, i + 1, i + 1);
    addresses[i] = blocks[i]->address;
  }
  for (int i = 0; i < 3; i++)
    openreg_block_free(blocks[i]);
  busy[2] = false;
  openreg_block *block = take(0, 0, 1024);
  assert_ptr_equal(block->address, addresses[1]);
  assert_int_equal(stats_of(0).active[ALL].current, 3);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(block);
  busy[1] = busy[3] = false;
  openreg_block_free(take(0, 0, 0)); /* any allocation polls */
  assert_int_equal(stats_of(0).active[ALL].current, 0);
}

static void the_blocks_own_stream_needs_no_recording(void **state) {
  (void)state;
  busy[0] = true;
  openreg_block *block = shared_block(512, 0, 0);
  openreg_block_free(block);
  assert_int_equal(queries, 0);
  assert_int_equal(stats_of(0).active[ALL].current, 0);
}

static void emptying_waits_for_the_streams(void **state) {
  (void)state;
  busy[5] = busy[6] = true;
  openreg_block_free(shared_block(3 * MIB, 5, 6));
  assert_int_equal(ledger_free(0), CAPACITY - 4 * MIB);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(waits, 2);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void a_request_that_would_fail_waits_first(void **state) {
  (void)state;
  busy[5] = true;
  openreg_block_free(shared_block(40 * MIB, 5, 5));
  openreg_block *block = take(0, 1, 40 * MIB);
  assert_int_equal(waits, 1);
  assert_int_equal(stats_of(0).ooms, 0);
  openreg_block_free(block);
}

static void an_error_of_the_wait_is_reported(void **state) {
  (void)state;
  busy[5] = true;
  openreg_block_free(shared_block(40 * MIB, 5, 5));
  wait_result = OPENREG_SYSTEM;
  openreg_block *none;
  assert_status(openreg_cache_empty(0), OPENREG_SYSTEM);
  assert_status(openreg_block_allocate(0, 0, 40 * MIB, &none), OPENREG_SYSTEM);
  assert_int_equal(stats_of(0).active[ALL].current, 1);
  wait_result = OPENREG_OK;
  assert_ok(openreg_cache_empty(0));
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  assert_status(openreg_block_record_stream(block, -1), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_record_stream(block, OPENREG_STREAMS_PER_DEVICE),
                OPENREG_INVALID_ARGUMENT);
  assert_sentence("stream 65: expected 0 to 64");
  assert_status(openreg_block_record_stream(NULL, 0), OPENREG_INVALID_ARGUMENT);
  openreg_block_free(block);
  assert_int_equal(queries, 0);
}

#define ON_IDLE_STREAMS(test) cmocka_unit_test_setup_teardown(test, idle_streams, devices_check)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_IDLE_STREAMS(a_block_whose_streams_are_idle_is_reused_at_once),
      ON_IDLE_STREAMS(a_block_that_a_stream_uses_stays_active),
      ON_IDLE_STREAMS(a_block_is_reused_when_its_last_stream_has_finished),
      ON_IDLE_STREAMS(several_blocks_wait_each_for_its_own),
      ON_IDLE_STREAMS(the_blocks_own_stream_needs_no_recording),
      ON_IDLE_STREAMS(emptying_waits_for_the_streams),
      ON_IDLE_STREAMS(a_request_that_would_fail_waits_first),
      ON_IDLE_STREAMS(an_error_of_the_wait_is_reported),
      ON_IDLE_STREAMS(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
