/* test_shared.c: exported blocks that are freed, and imports.
 *
 * The linker replaces functions of the device layer, so that the test decides which process holds
 * what. test_shared_processes.c does the same with real processes.
 */
#include "support.h"

#include "allocator/internal.h"

#include <stdatomic.h>
#include <string.h>

enum { ALL = OPENREG_POOL_ALL };

/* The exported range and how many others hold it; the range that can be imported, and how often it
 * was opened and closed. */
static struct {
  void *address;
  size_t bytes;
  int stream, holders, withdrawals;
} exported;
static struct {
  char *address;
  size_t bytes;
  int device, opened, closed;
} foreign;
static openreg_status export_result, open_result;
static int failing_pages;

openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle);
openreg_status __wrap_openreg_ipc_withdraw(void *address);
openreg_status __wrap_openreg_ipc_open(const openreg_ipc_handle *handle, int stream, void **address,
                                       size_t *bytes, int *device);
openreg_status __wrap_openreg_ipc_close(void *address);
int __real_openreg_arena_device_of(const void *address);
int __wrap_openreg_arena_device_of(const void *address);
void *__real_openreg_pages_map(size_t bytes);
void *__wrap_openreg_pages_map(size_t bytes);

openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle) {
  if (export_result != OPENREG_OK)
    return openreg_fail(export_result, "no export");
  exported.address = address;
  exported.bytes = bytes;
  exported.stream = stream;
  exported.holders++;
  memset(handle, 7, sizeof *handle);
  return OPENREG_OK;
}

openreg_status __wrap_openreg_ipc_withdraw(void *address) {
  assert_ptr_equal(address, exported.address);
  exported.withdrawals++;
  return exported.holders > 0 ? OPENREG_NOT_READY : OPENREG_OK;
}

openreg_status __wrap_openreg_ipc_open(const openreg_ipc_handle *handle, int stream, void **address,
                                       size_t *bytes, int *device) {
  (void)stream;
  if (open_result != OPENREG_OK || handle->bytes[0] != 7)
    return openreg_fail(OPENREG_INVALID_ARGUMENT, "no such handle");
  *address = foreign.address;
  *bytes = foreign.bytes;
  *device = foreign.device;
  foreign.opened++;
  return OPENREG_OK;
}

openreg_status __wrap_openreg_ipc_close(void *address) {
  assert_ptr_equal(address, foreign.address);
  assert_true(foreign.closed < foreign.opened);
  foreign.closed++;
  return OPENREG_OK;
}

int __wrap_openreg_arena_device_of(const void *address) {
  size_t offset = (size_t)((const char *)address - foreign.address);
  return offset < 2 * MIB ? foreign.device : __real_openreg_arena_device_of(address);
}

void *__wrap_openreg_pages_map(size_t bytes) {
  if (failing_pages && --failing_pages == 0) {
    openreg_fail(OPENREG_SYSTEM, "no pages");
    return NULL;
  }
  return __real_openreg_pages_map(bytes);
}

static int no_process_has_memory(void **state) {
  void *base;
  size_t bytes;
  memset(&exported, 0, sizeof exported);
  memset(&foreign, 0, sizeof foreign);
  export_result = open_result = OPENREG_OK;
  failing_pages = 0;
  assert_ok(openreg_arena_get(1, &base, &bytes));
  foreign.address = (char *)base + bytes; /* imports lie beyond the arena */
  foreign.bytes = 1000;
  foreign.device = 1;
  return devices_reset(state);
}

static openreg_block *exported_block(size_t bytes) {
  openreg_ipc_handle handle;
  openreg_block *block = take(0, 0, bytes);
  assert_ok(openreg_block_export(block, 0, &handle));
  assert_int_equal(handle.bytes[63], 7);
  return block;
}

static openreg_block *imported(int stream) {
  openreg_ipc_handle handle;
  openreg_block *block = NULL;
  memset(&handle, 7, sizeof handle);
  assert_ok(openreg_block_import(&handle, stream, &block));
  assert_non_null(block);
  return block;
}

/* ---- exports --------------------------------------------------------------------------------- */

static void an_exported_block_stays_allocated(void **state) {
  (void)state;
  openreg_block *block = exported_block(1000);
  assert_ptr_equal(exported.address, block->address);
  assert_int_equal(exported.bytes, 1000);
  assert_ptr_equal(openreg_block_find(block->address), block);
  assert_false(openreg_block_is_imported(block));
  assert_ok(openreg_block_record_stream(block, 3));
  assert_true(openreg_memory_is_valid(0));
  assert_int_equal(exported.withdrawals, 0);
  exported.holders = 0;
  openreg_block_free(block);
}

static void an_exported_block_without_importers_is_free_at_once(void **state) {
  (void)state;
  openreg_block *block = exported_block(512);
  void *address = block->address;
  exported.holders = 0;
  openreg_block_free(block);
  assert_int_equal(stats_of(0).active[ALL].current, 0);
  block = take(0, 0, 512);
  assert_ptr_equal(block->address, address);
  openreg_block_free(block); /* an ordinary block again */
  assert_int_equal(exported.withdrawals, 1);
}

static void an_exported_block_that_others_hold_stays_allocated(void **state) {
  (void)state;
  openreg_block *block = exported_block(1000);
  void *address = block->address;
  openreg_block_free(block);
  assert_true(openreg_memory_is_valid(0));
  assert_null(openreg_block_find(address));
  openreg_memory_stats stats = stats_of(0);
  assert_stat(stats.allocation[ALL], 1, 1, 1, 0);
  assert_stat(stats.allocated_bytes[ALL], 1024, 1024, 1024, 0);
  assert_stat(stats.active[ALL], 1, 1, 1, 0);
  assert_stat(stats.requested_bytes[ALL], 1000, 1000, 1000, 0);
  assert_snapshot_agrees(0);
  openreg_block *other = take(0, 0, 1000);
  assert_ptr_not_equal(other->address, address);
  openreg_block_free(other);
  exported.holders = 0;
  assert_ok(openreg_memory_collect_shared(0));
  stats = stats_of(0);
  assert_stat(stats.allocation[ALL], 0, 2, 2, 2);
  assert_stat(stats.active_bytes[ALL], 0, 2048, 2048, 2048);
}

static void requests_that_need_no_memory_do_not_poll(void **state) {
  (void)state;
  openreg_block_free(exported_block(512));
  assert_int_equal(exported.withdrawals, 1);
  for (int i = 0; i < 100; i++)
    openreg_block_free(take(0, 0, 1024));
  assert_int_equal(exported.withdrawals, 1);
  openreg_block_free(take(0, 1, 512)); /* reserves a segment */
  assert_int_equal(exported.withdrawals, 2);
  exported.holders = 0;
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(exported.withdrawals, 3);
  assert_int_equal(ledger_free(0), CAPACITY);
}

static void a_request_uses_returned_blocks_before_it_reserves(void **state) {
  (void)state;
  openreg_block *block = exported_block(40 * MIB);
  void *address = block->address;
  openreg_block_free(block);
  exported.holders = 0;
  block = take(0, 0, 40 * MIB);
  assert_ptr_equal(block->address, address);
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.device_allocs, 1);
  assert_int_equal(stats.alloc_retries, 0);
  openreg_block_free(block);
}

static void an_export_collects_earlier_ones(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  openreg_block_free(exported_block(1024));
  exported.holders = 0;
  openreg_ipc_handle handle;
  assert_ok(openreg_block_export(block, 0, &handle));
  assert_int_equal(stats_of(0).active[ALL].current, 1);
  exported.holders = 0;
  openreg_block_free(block);
}

static openreg_status wait_until_open(void *open) {
  while (!atomic_load((atomic_int *)open))
    ;
  return OPENREG_OK;
}

static void a_returned_block_still_waits_for_its_streams(void **state) {
  (void)state;
  atomic_int open = 0;
  openreg_block *block = exported_block(512);
  assert_ok(openreg_stream_launch(0, 7, &wait_until_open, &open));
  assert_ok(openreg_block_record_stream(block, 7));
  openreg_block_free(block);
  assert_true(openreg_memory_is_valid(0));
  exported.holders = 0;
  assert_ok(openreg_memory_collect_shared(0));
  openreg_memory_stats stats = stats_of(0);
  assert_int_equal(stats.allocation[ALL].current, 0);
  assert_int_equal(stats.active[ALL].current, 1);
  atomic_store(&open, 1);
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(ledger_free(0), CAPACITY);
}

static atomic_int finished;

static openreg_status finish_when_open(void *open) {
  wait_until_open(open);
  atomic_store(&finished, 1);
  return OPENREG_OK;
}

static openreg_status see_finished(void *seen) {
  atomic_store((atomic_int *)seen, atomic_load(&finished));
  return OPENREG_OK;
}

/* What the handle represents on `stream` comes after the work of the block's own stream. */
static void an_export_on_another_stream_is_ordered_after_the_blocks_own(void **state) {
  (void)state;
  atomic_int open = 0, seen = -1;
  openreg_ipc_handle handle;
  openreg_block *block = take(0, 3, 512);
  assert_ok(openreg_stream_launch(0, 3, &finish_when_open, &open));
  assert_ok(openreg_block_export(block, 5, &handle));
  assert_int_equal(exported.stream, 5);
  assert_ok(openreg_stream_launch(0, 5, &see_finished, &seen));
  atomic_store(&open, 1);
  assert_ok(openreg_stream_synchronize(0, 5));
  assert_int_equal(atomic_load(&seen), 1);
  exported.holders = 0;
  openreg_block_free(block);
}

static void an_export_that_fails_leaves_an_ordinary_block(void **state) {
  (void)state;
  openreg_ipc_handle handle;
  openreg_block *block = take(0, 0, 512);
  export_result = OPENREG_OUT_OF_MEMORY;
  assert_status(openreg_block_export(block, 0, &handle), OPENREG_OUT_OF_MEMORY);
  assert_error("no export");
  openreg_block_free(block);
  assert_int_equal(exported.withdrawals, 0);
}

static void bad_exports_are_refused(void **state) {
  (void)state;
  openreg_ipc_handle handle;
  openreg_block *block = take(0, 0, 512), *nothing = take(0, 0, 0), *import = imported(0);
  assert_status(openreg_block_export(NULL, 0, &handle), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_export(block, 0, NULL), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_export(nothing, 0, &handle), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_export(block, OPENREG_STREAMS_PER_DEVICE, &handle),
                OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_export(import, 0, &handle), OPENREG_NOT_PERMITTED);
  assert_int_equal(exported.holders, 0);
  openreg_block_free(block);
  openreg_block_free(nothing);
  openreg_block_free(import);
}

/* ---- imports --------------------------------------------------------------------------------- */

static void an_import_is_a_block_that_is_not_counted(void **state) {
  (void)state;
  openreg_memory_stats before = stats_of(1);
  openreg_block *block = imported(5);
  assert_ptr_equal(block->address, foreign.address);
  assert_int_equal(block->bytes, 1024);
  assert_int_equal(block->requested_bytes, 1000);
  assert_int_equal(block->device, 1);
  assert_int_equal(block->stream, 5);
  assert_null(block->user);
  assert_true(openreg_block_is_imported(block));
  assert_ptr_equal(openreg_block_find(block->address), block);
  assert_null(openreg_block_find(foreign.address + 512));
  assert_true(openreg_memory_is_valid(1));
  openreg_memory_stats after = stats_of(1);
  assert_memory_equal(&before, &after, sizeof before);
  assert_snapshot_agrees(1);
  openreg_block_free(block);
  assert_int_equal(foreign.closed, 1);
  assert_null(openreg_block_find(foreign.address));
}

static void each_import_is_closed_once(void **state) {
  (void)state;
  openreg_block *one = imported(0), *other = imported(1);
  assert_ptr_equal(one->address, other->address);
  openreg_block_free(one);
  assert_int_equal(foreign.closed, 1);
  assert_ptr_equal(openreg_block_find(foreign.address), other);
  openreg_block_free(other);
  assert_int_equal(foreign.closed, 2);
}

static void an_import_is_closed_when_its_own_stream_has_finished(void **state) {
  (void)state;
  atomic_int open = 0;
  openreg_block *block = imported(5);
  assert_ok(openreg_stream_launch(1, 5, &wait_until_open, &open));
  openreg_block_free(block);
  assert_int_equal(foreign.closed, 0);
  assert_null(openreg_block_find(foreign.address));
  assert_true(openreg_memory_is_valid(1));
  assert_ok(openreg_memory_collect_shared(1));
  assert_int_equal(foreign.closed, 0);
  atomic_store(&open, 1);
  assert_ok(openreg_stream_synchronize(1, 5));
  assert_ok(openreg_memory_collect_shared(1));
  assert_int_equal(foreign.closed, 1);
}

static void an_import_is_closed_when_recorded_streams_have_finished(void **state) {
  (void)state;
  atomic_int open = 0;
  openreg_block *block = imported(5);
  assert_ok(openreg_stream_launch(1, 6, &wait_until_open, &open));
  assert_ok(openreg_block_record_stream(block, 6));
  openreg_block_free(block);
  assert_int_equal(foreign.closed, 0);
  assert_true(openreg_memory_is_valid(1));
  atomic_store(&open, 1);
  assert_ok(openreg_stream_synchronize(1, 6));
  assert_ok(openreg_cache_empty(1));
  assert_int_equal(foreign.closed, 1);
}

static void a_handle_that_is_refused_makes_no_block(void **state) {
  (void)state;
  openreg_block *block = NULL;
  openreg_ipc_handle handle = {{0}};
  assert_status(openreg_block_import(&handle, 0, &block), OPENREG_INVALID_ARGUMENT);
  assert_error("no such handle");
  assert_status(openreg_block_import(NULL, 0, &block), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_import(&handle, 0, NULL), OPENREG_INVALID_ARGUMENT);
  memset(&handle, 7, sizeof handle);
  assert_status(openreg_block_import(&handle, -1, &block), OPENREG_INVALID_ARGUMENT);
  assert_status(openreg_block_import(&handle, OPENREG_STREAMS_PER_DEVICE, &block),
                OPENREG_INVALID_ARGUMENT);
  assert_error("stream 129: expected 0 to 128");
  assert_null(block);
  assert_int_equal(foreign.opened, 0);
}

static void an_import_without_a_record_is_closed_again(void **state) {
  (void)state;
  enum { MOST = 4096 };
  static struct block *taken[MOST];
  struct allocator *allocator;
  openreg_block *block = NULL;
  openreg_ipc_handle handle;
  int count = 0;
  memset(&handle, 7, sizeof handle);
  assert_ok(openreg_allocator_open(1, &allocator));
  while (allocator->blocks.available > 0 && count < MOST)
    taken[count++] = slab_take(&allocator->blocks);
  failing_pages = 1;
  assert_status(openreg_block_import(&handle, 0, &block), OPENREG_SYSTEM);
  assert_error("no pages");
  assert_null(block);
  assert_int_equal(foreign.opened, 1);
  assert_int_equal(foreign.closed, 1);
  while (count > 0)
    slab_put(&allocator->blocks, taken[--count]);
}

static void collecting_on_what_does_not_exist_is_refused(void **state) {
  (void)state;
  assert_status(openreg_memory_collect_shared(-1), OPENREG_INVALID_DEVICE);
  assert_status(openreg_memory_collect_shared(TEST_DEVICES), OPENREG_INVALID_DEVICE);
  assert_false(openreg_block_is_imported(NULL));
}

#define ALONE(test) cmocka_unit_test_setup_teardown(test, no_process_has_memory, devices_check)

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ALONE(an_exported_block_stays_allocated),
      ALONE(an_exported_block_without_importers_is_free_at_once),
      ALONE(an_exported_block_that_others_hold_stays_allocated),
      ALONE(requests_that_need_no_memory_do_not_poll),
      ALONE(a_request_uses_returned_blocks_before_it_reserves),
      ALONE(an_export_collects_earlier_ones),
      ALONE(a_returned_block_still_waits_for_its_streams),
      ALONE(an_export_on_another_stream_is_ordered_after_the_blocks_own),
      ALONE(an_export_that_fails_leaves_an_ordinary_block),
      ALONE(bad_exports_are_refused),
      ALONE(an_import_is_a_block_that_is_not_counted),
      ALONE(each_import_is_closed_once),
      ALONE(an_import_is_closed_when_its_own_stream_has_finished),
      ALONE(an_import_is_closed_when_recorded_streams_have_finished),
      ALONE(a_handle_that_is_refused_makes_no_block),
      ALONE(an_import_without_a_record_is_closed_again),
      ALONE(collecting_on_what_does_not_exist_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
