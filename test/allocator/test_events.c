/* test_events.c: memory that other streams still use is not reused.
 *
 * The linker replaces functions of the device layer, which count events and fail when the test says
 * so. A stream is busy while a gate on it is closed.
 */
#include "support.h"

enum { ALL = OPENREG_POOL_ALL, LAST = OPENREG_STREAMS_PER_DEVICE - 1 };

static int created, destroyed, recorded, queries, drains, failing_create;
static openreg_status drain_result;
static struct gate *opened_by_drain; /* its stream's work ends when it is drained */

openreg_status __real_openreg_event_create(int device, bool timing, openreg_event **event);
openreg_status __wrap_openreg_event_create(int device, bool timing, openreg_event **event);
void __real_openreg_event_destroy(openreg_event *event);
void __wrap_openreg_event_destroy(openreg_event *event);
openreg_status __real_openreg_event_record(openreg_event *event, int stream);
openreg_status __wrap_openreg_event_record(openreg_event *event, int stream);
openreg_status __real_openreg_event_query(const openreg_event *event);
openreg_status __wrap_openreg_event_query(const openreg_event *event);
openreg_status __real_openreg_stream_drain(int device, int stream);
openreg_status __wrap_openreg_stream_drain(int device, int stream);

openreg_status __wrap_openreg_event_create(int device, bool timing, openreg_event **event) {
  assert_false(timing);
  if (failing_create && --failing_create == 0)
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "no event");
  created++;
  return __real_openreg_event_create(device, timing, event);
}

void __wrap_openreg_event_destroy(openreg_event *event) {
  destroyed++;
  __real_openreg_event_destroy(event);
}

openreg_status __wrap_openreg_event_record(openreg_event *event, int stream) {
  recorded++;
  return __real_openreg_event_record(event, stream);
}

openreg_status __wrap_openreg_event_query(const openreg_event *event) {
  queries++;
  return __real_openreg_event_query(event);
}

openreg_status __wrap_openreg_stream_drain(int device, int stream) {
  if (drain_result != OPENREG_OK)
    return openreg_fail(drain_result, "no wait");
  drains++;
  if (opened_by_drain)
    atomic_store(&opened_by_drain->is_open, true);
  return __real_openreg_stream_drain(device, stream);
}

static int counted(void **state) {
  drain_result = OPENREG_OK;
  failing_create = 0;
  opened_by_drain = NULL;
  int result = devices_reset(state);
  created = destroyed = recorded = queries = drains = 0;
  return result;
}

static int all_destroyed(void **state) {
  int result = devices_check(state);
  assert_int_equal(created, destroyed);
  return result;
}

/* Returns a block of stream 0 that two other streams use. */
static openreg_block *used_block(size_t bytes, int one, int other) {
  openreg_block *block = take(0, 0, bytes);
  assert_ok(openreg_block_record_stream(block, one));
  assert_ok(openreg_block_record_stream(block, other));
  return block;
}

static int64_t active(void) {
  return stats_of(0).active[ALL].current;
}

/* ---- recording ------------------------------------------------------------------------------- */

static void a_stream_that_is_recorded_often_is_one_use(void **state) {
  (void)state;
  openreg_block *block = used_block(512, 3, LAST);
  assert_ok(openreg_block_record_stream(block, 3));
  assert_int_equal(created, 2);
  assert_int_equal(recorded, 0);
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(block);
  assert_int_equal(recorded, 2);
}

static void the_blocks_own_stream_needs_no_recording(void **state) {
  (void)state;
  struct gate gate;
  gate_close(&gate, 0, 0);
  openreg_block *block = used_block(512, 0, 0);
  openreg_block_free(block);
  assert_int_equal(created, 0);
  assert_int_equal(active(), 0);
  gate_open(&gate);
}

static void without_an_event_nothing_is_recorded(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  failing_create = 1;
  assert_status(openreg_block_record_stream(block, 4), OPENREG_OUT_OF_MEMORY);
  assert_error("no event");
  assert_true(openreg_memory_is_valid(0));
  openreg_block_free(block);
  assert_int_equal(active(), 0);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  assert_status(openreg_block_record_stream(block, -1), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_record_stream(block, OPENREG_STREAMS_PER_DEVICE),
                OPENREG_INVALID_ARGUMENT);
  assert_error("stream 129: expected 0 to 128");
  assert_status(openreg_block_record_stream(NULL, 0), OPENREG_INVALID_ARGUMENT);
  openreg_block_free(block);
  assert_int_equal(created, 0);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void a_freed_block_that_a_stream_uses_is_active_and_not_allocated(void **state) {
  (void)state;
  struct gate gate;
  openreg_block *block = used_block(100, 7, 8);
  void *address = block->address;
  gate_close(&gate, 0, 7);
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
  assert_int_equal(place_of(other), 512);
  openreg_block_free(other);
  gate_open(&gate);
}

/* It does not merge with free neighbors, in either direction. */
static void a_block_that_waits_is_not_merged(void **state) {
  (void)state;
  struct gate gate;
  openreg_block *below = take(0, 0, 512), *block = used_block(1024, 7, 7), *above = take(0, 0, 512);
  gate_close(&gate, 0, 7);
  openreg_block_free(block);
  openreg_block_free(below);
  openreg_block_free(above);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.inactive_split[ALL].current, 2);
  assert_int_equal(stats.inactive_split_bytes[ALL].current, 2 * MIB - 1024);
  gate_open(&gate);
}

static void a_block_of_idle_streams_is_free_at_the_next_request(void **state) {
  (void)state;
  openreg_block_free(used_block(512, 1, LAST));
  assert_int_equal(active(), 1);
  openreg_block_free(take(0, 0, 0));   /* not a request for memory */
  openreg_block_free(take(1, 0, 512)); /* of another device */
  assert_int_equal(active(), 1);
  assert_int_equal(queries, 0);
  openreg_block *block = take(0, 0, 512);
  assert_int_equal(place_of(block), 0);
  assert_int_equal(active(), 1);
  openreg_block_free(block);
}

static void a_request_of_any_stream_processes_events(void **state) {
  (void)state;
  openreg_block_free(used_block(512, 1, 2));
  openreg_block *block = take(0, 9, 512);
  assert_int_equal(active(), 1);
  openreg_block_free(block);
}

static void a_block_is_free_when_its_last_stream_has_finished(void **state) {
  (void)state;
  struct gate one, other;
  openreg_block *block = used_block(512, 3, LAST);
  gate_close(&one, 0, 3);
  gate_close(&other, 0, LAST);
  openreg_block_free(block);
  gate_open(&one);
  block = take(0, 0, 512);
  assert_int_equal(place_of(block), 512);
  openreg_block_free(block);
  gate_open(&other);
  block = take(0, 0, 512);
  assert_int_equal(place_of(block), 0);
  openreg_block_free(block);
}

/* Work that a stream begins after the free does not matter. */
static void only_work_before_the_free_is_waited_for(void **state) {
  (void)state;
  struct gate before, after;
  openreg_block *block = used_block(512, 3, 3);
  gate_close(&before, 0, 3);
  openreg_block_free(block);
  gate_open(&before);
  gate_close(&after, 0, 3);
  block = take(0, 0, 512);
  assert_int_equal(place_of(block), 0);
  openreg_block_free(block);
  gate_open(&after);
}

/* Ten blocks and two streams: each stream is queried once in vain, and no more. */
static void each_stream_is_queried_up_to_the_first_event_that_is_not_done(void **state) {
  (void)state;
  struct gate one, other;
  openreg_block *blocks[10];
  for (int i = 0; i < 10; i++)
    blocks[i] = used_block(512, 3 + i % 2, 3 + i % 2);
  gate_close(&one, 0, 3);
  gate_close(&other, 0, 4);
  for (int i = 0; i < 10; i++)
    openreg_block_free(blocks[i]);
  openreg_block_free(take(0, 0, 512));
  assert_int_equal(queries, 2);
  gate_open(&one);
  openreg_block_free(take(0, 0, 512));
  assert_int_equal(queries, 2 + 5 + 1);
  assert_int_equal(active(), 5);
  gate_open(&other);
}

/* ---- releasing memory ------------------------------------------------------------------------ */

/* It waits for the streams that were recorded, and no others. */
static void emptying_waits_for_the_events(void **state) {
  (void)state;
  struct gate gate, other;
  openreg_block *block = used_block(3 * MIB, 5, 6);
  gate_close(&gate, 0, 5);
  openreg_block_free(block);
  assert_int_equal(ledger_free(0), CAPACITY - 20 * MIB);
  opened_by_drain = &gate;
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(drains, 2);
  assert_int_equal(ledger_free(0), CAPACITY);
  gate_close(&other, 0, 7);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(drains, 2);
  gate_open(&other);
}

static void a_request_that_would_fail_waits_for_the_events(void **state) {
  (void)state;
  struct gate gate;
  openreg_block *freed = used_block(40 * MIB, 5, 5);
  gate_close(&gate, 0, 5);
  openreg_block_free(freed);
  opened_by_drain = &gate;
  openreg_block *block = take(0, 1, 40 * MIB);
  assert_int_equal(drains, 1);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.ooms, 0);
  assert_int_equal(stats.alloc_retries, 1);
  openreg_block_free(block);
}

static void an_error_of_the_wait_is_reported(void **state) {
  (void)state;
  struct gate gate;
  openreg_block *none, *block = used_block(40 * MIB, 5, 5);
  gate_close(&gate, 0, 5);
  openreg_block_free(block);
  drain_result = OPENREG_SYSTEM;
  assert_status(openreg_cache_empty(0), OPENREG_SYSTEM);
  assert_error("no wait");
  assert_status(openreg_block_allocate(0, 0, 40 * MIB, &none), OPENREG_SYSTEM);
  assert_int_equal(active(), 1);
  assert_true(openreg_memory_is_valid(0));
  drain_result = OPENREG_OK;
  gate_open(&gate);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
}

#define COUNTED(test) cmocka_unit_test_setup_teardown(test, counted, all_destroyed)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      COUNTED(a_stream_that_is_recorded_often_is_one_use),
      COUNTED(the_blocks_own_stream_needs_no_recording),
      COUNTED(without_an_event_nothing_is_recorded),
      COUNTED(bad_arguments_are_refused),
      COUNTED(a_freed_block_that_a_stream_uses_is_active_and_not_allocated),
      COUNTED(a_block_that_waits_is_not_merged),
      COUNTED(a_block_of_idle_streams_is_free_at_the_next_request),
      COUNTED(a_request_of_any_stream_processes_events),
      COUNTED(a_block_is_free_when_its_last_stream_has_finished),
      COUNTED(only_work_before_the_free_is_waited_for),
      COUNTED(each_stream_is_queried_up_to_the_first_event_that_is_not_done),
      COUNTED(emptying_waits_for_the_events),
      COUNTED(a_request_that_would_fail_waits_for_the_events),
      COUNTED(an_error_of_the_wait_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
