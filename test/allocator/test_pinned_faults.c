/* test_pinned_faults.c: each system call of the pinned pool fails once at every place. After each
 * failure nothing is lost, and the same request succeeds without the failure. */
#include "support.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/internal.h"

/* Lets some calls pass, then fails some. */
struct fault {
  int passing, failing;
};

static struct fault records, pinned, unmap;
static int watch_error;

static bool fails(struct fault *fault) {
  if (fault->failing == 0)
    return false;
  if (fault->passing > 0) {
    fault->passing--;
    return false;
  }
  fault->failing--;
  return true;
}

void *__real_openreg_pages_map(size_t bytes);
void *__wrap_openreg_pages_map(size_t bytes);
void *__real_openreg_pages_map_pinned(size_t bytes);
void *__wrap_openreg_pages_map_pinned(size_t bytes);
openreg_status __real_openreg_pages_unmap(void *pages, size_t bytes);
openreg_status __wrap_openreg_pages_unmap(void *pages, size_t bytes);
int __real_openreg_lock_register_fork_handlers(void (*before)(void), void (*after)(void));
int __wrap_openreg_lock_register_fork_handlers(void (*before)(void), void (*after)(void));

void *__wrap_openreg_pages_map(size_t bytes) {
  if (!fails(&records))
    return __real_openreg_pages_map(bytes);
  openreg_fail(OPENREG_SYSTEM, "no records");
  return NULL;
}

void *__wrap_openreg_pages_map_pinned(size_t bytes) {
  if (!fails(&pinned))
    return __real_openreg_pages_map_pinned(bytes);
  openreg_fail(OPENREG_SYSTEM, "no pages");
  return NULL;
}

openreg_status __wrap_openreg_pages_unmap(void *pages, size_t bytes) {
  if (!fails(&unmap))
    return __real_openreg_pages_unmap(pages, bytes);
  return openreg_fail(OPENREG_SYSTEM, "no way back");
}

int __wrap_openreg_lock_register_fork_handlers(void (*before)(void), void (*after)(void)) {
  return watch_error ? watch_error : __real_openreg_lock_register_fork_handlers(before, after);
}

static int nothing_fails_any_more(void **state) {
  (void)state;
  assert_int_equal(records.failing + pinned.failing + unmap.failing, 0);
  assert_int_equal(pinned_stats().active_requests.current, 0);
  return 0;
}

static void assert_refused(size_t bytes, openreg_status status, const char *sentence) {
  void *address = &address;
  assert_status(openreg_pinned_allocate(bytes, &address), status);
  assert_error(sentence);
  assert_ptr_equal(address, &address);
}

/* Fork handlers are registered by the first call, which must be in its own process. */
static void a_failed_fork_handler_is_an_error(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    void *address;
    watch_error = ENOMEM;
    bool refused =
        openreg_pinned_allocate(100, &address) == OPENREG_SYSTEM &&
        strstr(openreg_last_error(), "cannot register a fork handler: Cannot allocate memory");
    _exit(refused ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* Runs on a pool without records. A request allocates them twice: again after emptying the cache.
 */
static void missing_records_are_an_error(void **state) {
  (void)state;
  records = (struct fault){.failing = 2};
  assert_refused(100, OPENREG_OUT_OF_MEMORY, "no records");
  records = (struct fault){.passing = 1, .failing = 2}; /* the block's record succeeds, the
                                                         * directory fails */
  assert_refused(100, OPENREG_OUT_OF_MEMORY, "no records");
  openreg_pinned_free(pin(100));
}

static void a_directory_that_cannot_grow_keeps_what_it_has(void **state) {
  (void)state;
  enum { ROOM = 512 }; /* as many as fit in the first directory; there are records for more */
  void *addresses[ROOM];
  for (int i = 0; i < ROOM; i++)
    addresses[i] = pin(1);
  records = (struct fault){.failing = 2};
  assert_refused(1, OPENREG_OUT_OF_MEMORY, "no records");
  void *one_more = pin(1);
  for (int i = 0; i < ROOM; i++)
    assert_true(openreg_pinned_contains(addresses[i]));
  for (int i = 0; i < ROOM; i++)
    openreg_pinned_free(addresses[i]);
  assert_true(openreg_pinned_contains(one_more));
  openreg_pinned_free(one_more);
  assert_int_equal(pinned_stats().allocations.current, ROOM + 1);
}

static void memory_that_the_host_does_not_have_is_an_error(void **state) {
  (void)state;
  void *held = pin(100);
  pinned = (struct fault){.failing = 2};
  assert_refused(MIB, OPENREG_OUT_OF_MEMORY, "no pages");
  openreg_pinned_stats stats = pinned_stats();
  assert_int_equal(stats.active_requests.current, 1);
  assert_int_equal(stats.allocations.current, 1);
  openreg_pinned_free(held);
}

static void a_request_that_would_fail_gets_the_cached_memory(void **state) {
  (void)state;
  openreg_pinned_free(pin(100));
  openreg_pinned_free(pin(5000));
  pinned = (struct fault){.failing = 1};
  void *address = pin(MIB);
  assert_stat(pinned_stats().allocations, 1, 2, 3, 2);
  openreg_pinned_free(address);
}

static void a_block_that_the_system_refuses_stays_cached(void **state) {
  (void)state;
  void *small = pin(100), *large = pin(5000);
  openreg_pinned_free(small);
  openreg_pinned_free(large);
  unmap = (struct fault){.passing = 1, .failing = 1};
  assert_status(openreg_pinned_empty_cache(), OPENREG_SYSTEM);
  assert_error("no way back");
  assert_int_equal(pinned_stats().allocated_bytes.current, 8192);
  assert_ptr_equal(pin(5000), large);
  openreg_pinned_free(large);
}

static void a_cache_that_cannot_be_released_fails_the_request(void **state) {
  (void)state;
  void *cached = pin(100);
  openreg_pinned_free(cached);
  pinned = (struct fault){.failing = 1};
  unmap = (struct fault){.failing = 1};
  assert_refused(MIB, OPENREG_SYSTEM, "no way back");
  assert_ptr_equal(pin(100), cached);
  openreg_pinned_free(cached);
}

static void a_large_block_that_the_system_refuses_is_cached(void **state) {
  (void)state;
  openreg_pinned_settings settings, none_cached;
  openreg_pinned_get_settings(&settings);
  none_cached = settings;
  none_cached.max_cached_bytes = 0;
  set_pinned_settings(none_cached);
  void *address = pin(100);
  unmap = (struct fault){.failing = 1};
  openreg_pinned_free(address);
  openreg_pinned_stats stats = pinned_stats();
  assert_stat(stats.active_requests, 0, 1, 1, 1);
  assert_stat(stats.allocated_bytes, 100, 100, 100, 0);
  assert_int_equal(stats.host_free_time.count, 0);
  assert_ptr_equal(pin(100), address);
  openreg_pinned_free(address);
  assert_int_equal(pinned_stats().allocated_bytes.current, 0);
  set_pinned_settings(settings);
}

static void unmapping_invalid_pages_fails(void **state) {
  assert_status(__real_openreg_pages_unmap((char *)state + 1, 1), OPENREG_SYSTEM);
  assert_error("cannot return 1 bytes of host memory: Invalid argument");
}

#define ON_EMPTY_POOL(test)                                                                        \
  cmocka_unit_test_setup_teardown(test, pinned_reset, nothing_fails_any_more)

int main(void) {
  configure();
  /* In this order: the first two need a pool that was never used. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failed_fork_handler_is_an_error),
      cmocka_unit_test(missing_records_are_an_error),
      ON_EMPTY_POOL(a_directory_that_cannot_grow_keeps_what_it_has),
      ON_EMPTY_POOL(memory_that_the_host_does_not_have_is_an_error),
      ON_EMPTY_POOL(a_request_that_would_fail_gets_the_cached_memory),
      ON_EMPTY_POOL(a_block_that_the_system_refuses_stays_cached),
      ON_EMPTY_POOL(a_cache_that_cannot_be_released_fails_the_request),
      ON_EMPTY_POOL(a_large_block_that_the_system_refuses_is_cached),
      ON_EMPTY_POOL(unmapping_invalid_pages_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
