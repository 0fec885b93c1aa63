/* test_debug.c: with OPENREG_DEBUG_MEMORY=1, writes to memory that the program does not own are
 * found.
 *
 * The linker replaces functions of the device layer, so that streams can seem busy and other
 * processes can seem to hold blocks. A file replaces stderr, so that the test can read it.
 */
#define _GNU_SOURCE
#include "support.h"

#include "allocator/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALL = OPENREG_POOL_ALL };

/* ---- replaced functions of the device layer -------------------------------------------------- */

static bool busy, shared;

openreg_status __real_openreg_event_query(const openreg_event *event);
openreg_status __wrap_openreg_event_query(const openreg_event *event);
openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle);
openreg_status __wrap_openreg_ipc_withdraw(void *address);

openreg_status __wrap_openreg_event_query(const openreg_event *event) {
  return busy ? OPENREG_NOT_READY : __real_openreg_event_query(event);
}

openreg_status __wrap_openreg_ipc_export(void *address, size_t bytes, int stream,
                                         openreg_ipc_handle *handle) {
  (void)address, (void)bytes, (void)stream, (void)handle;
  shared = true;
  return OPENREG_OK;
}

openreg_status __wrap_openreg_ipc_withdraw(void *address) {
  (void)address;
  return shared ? OPENREG_NOT_READY : OPENREG_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static int paper = -1, real_stderr = -1;

static void watch_stderr(void) {
  fflush(stderr);
  paper = memfd_create("stderr", 0);
  real_stderr = dup(STDERR_FILENO);
  assert_true(paper >= 0 && real_stderr >= 0);
  assert_int_equal(dup2(paper, STDERR_FILENO), STDERR_FILENO);
}

/* Returns what was printed since the last call. Call it before assertions, so that they can be
 * read. */
static const char *printed(void) {
  static char text[1 << 16];
  fflush(stderr);
  dup2(real_stderr, STDERR_FILENO);
  ssize_t bytes = pread(paper, text, sizeof text - 1, 0);
  text[bytes > 0 ? bytes : 0] = '\0';
  close(paper);
  close(real_stderr);
  return text;
}

__attribute__((noinline)) static void assert_contains(const char *text, const char *part) {
  if (strstr(text, part))
    return;
  print_error("\"%s\" is not in \"%s\"\n", part, text);
  fail();
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Asserts that synchronizing returns the failure once. */
static void assert_kept(int device, const char *part) {
  assert_status(openreg_device_synchronize(device), OPENREG_LAUNCH_FAILURE);
  assert_error(part);
  assert_clean(device);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static void each_kind_of_memory_has_its_pattern(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 700);
  char *address = block->address;
  assert_filled(address, 700, OPENREG_DEBUG_FRESH);
  assert_filled(address + 700, 1024 - 700 + 512, OPENREG_DEBUG_ZONE);
  assert_filled(address + 1536, 4096, OPENREG_DEBUG_FREED);
  memset(memory(address), 1, 700);
  openreg_block_free(block);
  assert_filled(address, 1536, OPENREG_DEBUG_FREED);
  block = take(0, 0, 700);
  assert_ptr_equal(block->address, address);
  assert_filled(address, 700, OPENREG_DEBUG_FRESH);
  openreg_block_free(block);
  assert_clean(0);
}

/* The rest of a block that was not split off, behind the requested bytes. */
static void a_rest_that_was_not_split_off_is_red_zone_too(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 11 * MIB);
  char *address = block->address;
  assert_int_equal(block->bytes, 12 * MIB);
  assert_filled(address + 11 * MIB, 4096, OPENREG_DEBUG_ZONE);
  memory(address)[12 * MIB - 1] = 3;
  watch_stderr();
  openreg_block_free(block);
  printed();
  assert_kept(0, "offset 12582911: ");
}

/* ---- writes past the end --------------------------------------------------------------------- */

static void found_when_freed(size_t offset) {
  char part[200];
  openreg_block *block = take(0, 0, 1000);
  char *address = block->address;
  memory(address)[offset] = 7;
  watch_stderr();
  openreg_block_free(block);
  const char *text = printed();
  snprintf(part, sizeof part,
           "openreg: device 0: memory was written past the end of a block: the block of 1000 "
           "bytes at %p, offset %zu: the byte at %p is 0x07 instead of 0xfb",
           (void *)address, offset, (void *)(address + offset));
  assert_contains(text, part);
  assert_contains(text, "allocated at:");
  assert_contains(text, "test_allocator_debug"); /* frames of this program */
  assert_kept(0, part);
  assert_filled(address, 1536, OPENREG_DEBUG_FREED);
}

static void a_write_past_the_end_is_found_when_the_block_is_freed(void **state) {
  (void)state;
  const size_t offsets[] = {1000, 1023, 1024, 1535};
  for (int i = 0; i < 4; i++)
    found_when_freed(offsets[i]);
}

static void a_write_before_the_start_hits_the_red_zone_below(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 512), *high = take(0, 0, 512);
  assert_ptr_equal((char *)low->address + 1024, high->address);
  memory(high->address)[-1] = 0;
  watch_stderr();
  openreg_status status = openreg_memory_check(0);
  const char *text = printed();
  assert_status(status, OPENREG_LAUNCH_FAILURE);
  assert_error("past the end of a block: the block of 512 bytes");
  assert_error("offset 1023: ");
  assert_contains(text, "offset 1023");
  assert_clean(0); /* it was repaired, so freeing does not report it */
  openreg_block_free(high);
  openreg_block_free(low);
  assert_clean(0);
}

static void blocks_of_memory_pools_are_checked_too(void **state) {
  (void)state;
  uint64_t mempool;
  assert_ok(openreg_mempool_create(false, NULL, &mempool));
  assert_ok(openreg_mempool_set_current(1, mempool));
  openreg_block *block = take(1, 3, 3 * MIB);
  assert_ok(openreg_mempool_set_current(1, 0));
  memory(block->address)[3 * MIB] = 0;
  watch_stderr();
  openreg_block_free(block);
  printed();
  assert_kept(1,
              "device 1: memory was written past the end of a block: the block of 3145728 bytes");
  assert_ok(openreg_mempool_release(mempool));
}

/* ---- writing to freed memory ----------------------------------------------------------------- */

static void a_write_to_freed_memory_is_found_when_it_is_reused(void **state) {
  (void)state;
  openreg_block *held = take(0, 0, 512), *block = take(0, 0, 2048);
  char *address = block->address;
  openreg_block_free(block);
  memory(address)[100] = 0x2a;
  watch_stderr();
  block = take(0, 0, 2048);
  const char *text = printed();
  assert_ptr_equal(block->address, address);
  assert_contains(text, "memory was written after it was freed: the block of 2048 bytes at ");
  assert_contains(text, "offset 100: ");
  assert_contains(text, "is 0x2a instead of 0xfd\n");
  assert_contains(text, "test_allocator_debug");
  assert_kept(0, "after it was freed");
  openreg_block_free(block);
  openreg_block_free(held);
}

/* Two freed neighbors merge, and a third block is split off at their start. */
static void the_last_owner_is_known_after_merging_and_splitting(void **state) {
  (void)state;
  openreg_block *low = take(0, 0, 1024), *high = take(0, 0, 8192), *held = take(0, 0, 512);
  char *address = high->address;
  openreg_block_free(low);
  openreg_block_free(high);
  openreg_block *other = take(0, 0, 4096);
  assert_true((char *)other->address + other->bytes + 512 > address); /* it contains a part of
                                                                       * `high` */
  memory(address)[8191] = 1;
  watch_stderr();
  openreg_status status = openreg_memory_check(0);
  printed();
  assert_status(status, OPENREG_LAUNCH_FAILURE);
  assert_error("after it was freed: the block of 8192 bytes");
  assert_error("offset 8191: ");
  openreg_block_free(other);
  openreg_block_free(held);
  assert_clean(0);
}

/* The first page, 20 MiB of a freed block of 30 MiB, is unmapped. */
static void the_last_owner_is_known_after_unmapping(void **state) {
  (void)state;
  openreg_memory_settings settings = default_settings();
  settings.expandable_segments = true;
  set_settings(settings);
  openreg_block *block = take(0, 0, 30 * MIB), *held = take(0, 0, 3 * MIB);
  char *address = block->address;
  openreg_block_free(block);
  assert_ok(openreg_cache_empty(0));
  memory(address)[25 * MIB] = 1;
  watch_stderr();
  openreg_status status = openreg_memory_check(0);
  printed();
  assert_status(status, OPENREG_LAUNCH_FAILURE);
  assert_error("after it was freed: the block of 31457280 bytes");
  assert_error("offset 26214400: ");
  openreg_block_free(held);
  assert_clean(0);
}

static void memory_that_was_never_allocated_is_checked(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  memory(block->address)[100000] = 1;
  watch_stderr();
  openreg_status status = openreg_memory_check(0);
  printed();
  assert_status(status, OPENREG_LAUNCH_FAILURE);
  assert_error("after it was freed: memory of no known block");
  openreg_block_free(block);
}

static void emptying_the_cache_checks_it_first(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 4 * MIB);
  char *address = block->address;
  openreg_block_free(block);
  memory(address)[4 * MIB - 1] = 1;
  watch_stderr();
  openreg_status status = openreg_cache_empty(0);
  printed();
  assert_ok(status);
  assert_kept(0, "after it was freed: the block of 4194304 bytes");
}

/* ---- memory that is still in use ------------------------------------------------------------- */

static void memory_that_a_stream_uses_is_not_checked(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  unsigned char *bytes = memory(block->address);
  assert_ok(openreg_block_record_stream(block, 1));
  busy = true;
  openreg_block_free(block);
  bytes[0] = 1;
  openreg_block_free(take(0, 0, 4096));
  assert_int_equal(bytes[0], 1);
  assert_ok(openreg_memory_check(0));
  bytes[512] = 2;
  busy = false;
  watch_stderr();
  assert_ok(openreg_cache_empty(0));
  printed();
  assert_kept(0, "offset 512: ");
}

static void memory_that_another_process_holds_is_not_checked(void **state) {
  (void)state;
  openreg_ipc_handle handle;
  openreg_block *block = take(0, 0, 512);
  unsigned char *bytes = memory(block->address);
  assert_ok(openreg_block_export(block, 0, &handle));
  openreg_block_free(block);
  bytes[0] = 1;
  assert_ok(openreg_memory_check(0));
  assert_int_equal(bytes[0], 1);
  shared = false;
  assert_ok(openreg_memory_collect_shared(0));
  assert_int_equal(bytes[0], OPENREG_DEBUG_FREED);
  assert_clean(0);
}

/* ---- stacks of the program ------------------------------------------------------------------- */

static int captured, dropped;

static void *capture(void) {
  captured++;
  return strdup("written by the program");
}

static char *describe(void *stack) {
  return strdup(stack);
}

static void drop(void *stack) {
  dropped++;
  free(stack);
}

static void stacks_of_the_program_are_used_and_dropped(void **state) {
  (void)state;
  assert_ok(openreg_cache_empty(0));
  openreg_memory_set_stack_provider(&(openreg_stack_provider){capture, describe, drop});
  openreg_block *block = take(0, 0, 512), *other = take(0, 0, 512), *none;
  assert_status(openreg_block_allocate(0, 0, 65 * MIB, &none), OPENREG_OUT_OF_MEMORY);
  openreg_block_free(take(0, 0, 0));
  openreg_memory_set_stack_provider(NULL);
  assert_int_equal(captured, 4);
  assert_int_equal(dropped, 2);
  memory(block->address)[600] = 0;
  watch_stderr();
  openreg_block_free(block);
  const char *text = printed();
  assert_contains(text, "It was allocated at:\nwritten by the program\n");
  assert_kept(0, "past the end");
  openreg_block_free(other);
  openreg_block_free(take(0, 0, 512)); /* at an address that had such a stack */
  assert_ok(openreg_cache_empty(0));
  assert_int_equal(dropped, 4);
}

static void a_report_does_not_replace_the_error_of_a_request(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 4 * MIB), *none;
  char *address = block->address;
  openreg_block_free(block);
  memory(address)[0] = 0;
  watch_stderr();
  openreg_status status = openreg_block_allocate(0, 0, 64 * MIB, &none);
  printed();
  assert_status(status, OPENREG_OUT_OF_MEMORY);
  assert_error("out of memory");
  assert_kept(0, "after it was freed");
}

/* ---- arguments, and without debugging -------------------------------------------------------- */

static void devices_that_do_not_exist_are_refused(void **state) {
  (void)state;
  assert_status(openreg_memory_check(2), OPENREG_INVALID_DEVICE);
  assert_status(openreg_memory_check(-1), OPENREG_INVALID_DEVICE);
}

/* Runs in its own process, because the configuration is read once. */
static void check_without_the_mode(void) {
  configure();
  unsetenv("OPENREG_DEBUG_MEMORY");
  openreg_block *block;
  if (openreg_block_allocate(0, 0, 100, &block) != OPENREG_OK)
    _exit(2);
  memory(block->address)[100] = 1;
  _exit(openreg_memory_check(0) == OPENREG_OK && memory(block->address)[0] == 0 ? 0 : 1);
}

static void nothing_is_checked_without_debugging(void **state) {
  int status = *(int *)*state;
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* Also drops the stacks of freed memory. */
static int empty_caches(void **state) {
  (void)state;
  return openreg_cache_empty(0) != OPENREG_OK || openreg_cache_empty(1) != OPENREG_OK;
}

int main(void) {
  int without_the_mode;
  pid_t child = fork();
  if (child == 0)
    check_without_the_mode();
  if (waitpid(child, &without_the_mode, 0) != child)
    return 1;
  configure();
  setenv("OPENREG_DEBUG_MEMORY", "1", 1);
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(each_kind_of_memory_has_its_pattern),
      ON_EMPTY_DEVICES(a_rest_that_was_not_split_off_is_red_zone_too),
      ON_EMPTY_DEVICES(a_write_past_the_end_is_found_when_the_block_is_freed),
      ON_EMPTY_DEVICES(a_write_before_the_start_hits_the_red_zone_below),
      ON_EMPTY_DEVICES(blocks_of_memory_pools_are_checked_too),
      ON_EMPTY_DEVICES(a_write_to_freed_memory_is_found_when_it_is_reused),
      ON_EMPTY_DEVICES(the_last_owner_is_known_after_merging_and_splitting),
      ON_EMPTY_DEVICES(the_last_owner_is_known_after_unmapping),
      ON_EMPTY_DEVICES(memory_that_was_never_allocated_is_checked),
      ON_EMPTY_DEVICES(emptying_the_cache_checks_it_first),
      ON_EMPTY_DEVICES(memory_that_a_stream_uses_is_not_checked),
      ON_EMPTY_DEVICES(memory_that_another_process_holds_is_not_checked),
      ON_EMPTY_DEVICES(stacks_of_the_program_are_used_and_dropped),
      ON_EMPTY_DEVICES(a_report_does_not_replace_the_error_of_a_request),
      cmocka_unit_test(devices_that_do_not_exist_are_refused),
      cmocka_unit_test_prestate(nothing_is_checked_without_debugging, &without_the_mode),
  };
  return cmocka_run_group_tests(tests, NULL, empty_caches);
}
