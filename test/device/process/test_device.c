/* Initialization, forks, the current device, and properties. */
#include "child.h"
#include "device/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- initialization -------------------------------------------------------------------------- */

CHILD_TEST(counting_and_selecting_devices_initializes_nothing) {
  int count = 0;
  REQUIRE_OK(openreg_device_count(&count));
  REQUIRE(count == 2);
  REQUIRE_OK(openreg_device_set_current(1));
  REQUIRE(openreg_device_current() == 1);
  REQUIRE(!openreg_is_initialized());
}

CHILD_TEST(initializing_twice_is_initializing_once) {
  void *first, *second;
  size_t bytes;
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_is_initialized());
  REQUIRE_OK(openreg_arena_get(0, &first, &bytes));
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_arena_get(0, &second, &bytes));
  REQUIRE(first == second);
}

CHILD_TEST(functions_that_need_devices_initialize_them) {
  openreg_device_properties properties;
  REQUIRE_OK(openreg_device_get_properties(0, &properties));
  REQUIRE(openreg_is_initialized());
}

enum { THREADS = 8 };

static pthread_barrier_t together;

static void *initialize_in_thread(void *base) {
  size_t bytes;
  pthread_barrier_wait(&together);
  REQUIRE(openreg_arena_device_of(base) == -1);
  REQUIRE_OK(openreg_initialize());
  REQUIRE_OK(openreg_arena_get(1, base, &bytes));
  REQUIRE(openreg_arena_device_of(*(void **)base) == 1);
  return NULL;
}

CHILD_TEST(threads_that_initialize_together_get_the_same_arenas) {
  pthread_t threads[THREADS];
  void *bases[THREADS];
  REQUIRE(pthread_barrier_init(&together, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, initialize_in_thread, &bases[i]) == 0);
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_join(threads[i], NULL) == 0);
  for (int i = 1; i < THREADS; i++)
    REQUIRE(bases[i] == bases[0]);
  pthread_barrier_destroy(&together);
}

/* ---- forks ----------------------------------------------------------------------------------- */

static void in_bad_fork(void) {
  openreg_device_properties properties;
  bool can_access;
  int count;
  REQUIRE(openreg_in_bad_fork());
  REQUIRE(!openreg_is_initialized());
  REQUIRE(openreg_initialize() == OPENREG_BAD_FORK);
  REQUIRE(strstr(openreg_last_error(), "'spawn'") != NULL);
  REQUIRE(openreg_device_get_properties(0, &properties) == OPENREG_BAD_FORK);
  REQUIRE_OK(openreg_device_count(&count));
  REQUIRE_OK(openreg_device_set_current(1));
  REQUIRE_OK(openreg_device_can_access_peer(0, 1, &can_access));
}

static void in_bad_fork_and_its_child(void) {
  in_bad_fork();
  child_fork_and_require(in_bad_fork);
}

CHILD_TEST(a_child_forked_after_initialization_has_no_devices) {
  REQUIRE_OK(openreg_initialize());
  child_fork_and_require(in_bad_fork_and_its_child);
  REQUIRE(!openreg_in_bad_fork());
  REQUIRE_OK(openreg_initialize());
}

static void in_good_fork(void) {
  REQUIRE(!openreg_in_bad_fork());
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_is_initialized());
}

CHILD_TEST(a_child_forked_before_initialization_has_its_own_devices) {
  REQUIRE_OK(openreg_device_set_current(1));
  child_fork_and_require(in_good_fork);
  REQUIRE(!openreg_is_initialized());
  REQUIRE_OK(openreg_initialize());
}

/* ---- the current device ---------------------------------------------------------------------- */

static void *current_in_thread(void *seen) {
  *(int *)seen = openreg_device_current();
  REQUIRE_OK(openreg_device_set_current(0));
  return NULL;
}

CHILD_TEST(each_thread_has_its_own_current_device_and_starts_with_0) {
  pthread_t thread;
  int seen = -1;
  REQUIRE_OK(openreg_device_set_current(1));
  REQUIRE(pthread_create(&thread, NULL, current_in_thread, &seen) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
  REQUIRE(seen == 0);
  REQUIRE(openreg_device_current() == 1);
}

CHILD_TEST(a_device_that_does_not_exist_cannot_be_current) {
  REQUIRE_OK(openreg_device_set_current(1));
  REQUIRE(openreg_device_set_current(2) == OPENREG_INVALID_DEVICE);
  REQUIRE(strcmp(openreg_last_error(), "openreg: invalid device ordinal 2: expected 0 to 1") == 0);
  REQUIRE(openreg_device_set_current(-1) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_device_current() == 1);
}

/* ---- properties ------------------------------------------------------------------------------ */

static void properties_body(void) {
  openreg_device_properties properties;
  REQUIRE_OK(openreg_device_get_properties(0, &properties));
  REQUIRE(strcmp(properties.profile.name, "Tesla T4") == 0);
  REQUIRE(properties.profile.multiprocessor_count == 40);
  REQUIRE(properties.profile.memory_bytes == (uint64_t)15102 << 20);
  REQUIRE(properties.total_memory_bytes == (uint64_t)4 << 20);
  REQUIRE_OK(openreg_device_get_properties(1, &properties));
  REQUIRE(strcmp(properties.profile.name, "openreg 48x1536") == 0);
  REQUIRE(properties.total_memory_bytes == (uint64_t)6 << 20);
}

static void properties_are_the_profile_with_the_configured_memory(void **state) {
  (void)state;
  child_expect_pass(properties_body,
                    ENVIRONMENT("OPENREG_PROFILE=t4,48x1536", "OPENREG_DEVICE_MEMORY=4M,6M"));
}

CHILD_TEST(devices_that_do_not_exist_have_no_properties) {
  openreg_device_properties properties = {.numa_node = 77};
  REQUIRE(openreg_device_get_properties(2, &properties) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_device_get_properties(-1, &properties) == OPENREG_INVALID_DEVICE);
  REQUIRE(properties.numa_node == 77);
}

CHILD_TEST(different_devices_are_peers_but_not_a_device_and_itself) {
  bool can_access = true;
  REQUIRE_OK(openreg_device_can_access_peer(0, 0, &can_access));
  REQUIRE(!can_access);
  REQUIRE_OK(openreg_device_can_access_peer(0, 1, &can_access));
  REQUIRE(can_access);
  can_access = false;
  REQUIRE_OK(openreg_device_can_access_peer(1, 0, &can_access));
  REQUIRE(can_access);
}

CHILD_TEST(devices_that_do_not_exist_are_no_peers) {
  bool can_access = true;
  REQUIRE(openreg_device_can_access_peer(0, 2, &can_access) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_device_can_access_peer(-1, 0, &can_access) == OPENREG_INVALID_DEVICE);
  REQUIRE(can_access);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counting_and_selecting_devices_initializes_nothing),
      cmocka_unit_test(initializing_twice_is_initializing_once),
      cmocka_unit_test(functions_that_need_devices_initialize_them),
      cmocka_unit_test(threads_that_initialize_together_get_the_same_arenas),
      cmocka_unit_test(a_child_forked_after_initialization_has_no_devices),
      cmocka_unit_test(a_child_forked_before_initialization_has_its_own_devices),
      cmocka_unit_test(each_thread_has_its_own_current_device_and_starts_with_0),
      cmocka_unit_test(a_device_that_does_not_exist_cannot_be_current),
      cmocka_unit_test(properties_are_the_profile_with_the_configured_memory),
      cmocka_unit_test(devices_that_do_not_exist_have_no_properties),
      cmocka_unit_test(different_devices_are_peers_but_not_a_device_and_itself),
      cmocka_unit_test(devices_that_do_not_exist_are_no_peers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
