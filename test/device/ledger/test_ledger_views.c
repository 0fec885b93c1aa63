/* Processes that see different devices of one group: each sees what the others use, on the right
 * devices.
 */
#include "views.h"

#include <stdlib.h>
#include <string.h>

#define THREE_DEVICES                                                                              \
  ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=64M",                               \
              "OPENREG_PROFILE=4x1024,5x1024,6x1024", "OPENREG_GPU_OVERHEAD=0")

static openreg_ledger_snapshot *own_group(void) {
  openreg_ledger_snapshot *group;
  REQUIRE_OK(openreg_ledger_find_own(false, &group));
  REQUIRE(group->device_count == 3);
  return group;
}

static void take_from_last(void) {
  see("2");
  REQUIRE_OK(openreg_ledger_reserve(0, 40 * MIB));
  report(0);
  await_cue();
}

static void take_from_last_and_see_others(void) {
  take_from_last();
  REQUIRE(used_on(0) == 48 * MIB);
  REQUIRE(openreg_ledger_reserve(0, 17 * MIB) == OPENREG_OUT_OF_MEMORY);
  openreg_ledger_release(0, 40 * MIB);
  report(0);
  await_cue();
}

VIEWS_TEST(memory_is_shared_whatever_index_a_device_has) {
  helper other = board_with(take_from_last_and_see_others);
  see("1,2");
  REQUIRE(used_on(0) == 0 && used_on(1) == 40 * MIB);
  REQUIRE(openreg_ledger_reserve(1, 25 * MIB) == OPENREG_OUT_OF_MEMORY);
  REQUIRE_OK(openreg_ledger_reserve(1, 8 * MIB));
  REQUIRE_OK(openreg_ledger_reserve(0, 64 * MIB));
  helper_step(&other);
  REQUIRE(used_on(0) == 64 * MIB && used_on(1) == 8 * MIB);
  helper_dismiss(&other);
}

VIEWS_TEST(memory_of_a_killed_process_is_free_again) {
  helper other = board_with(take_from_last);
  see("0,2");
  REQUIRE(used_on(1) == 40 * MIB);
  helper_kill(&other);
  REQUIRE(used_on(1) == 0);
  REQUIRE_OK(openreg_ledger_reserve(1, 64 * MIB));
}

VIEWS_TEST(a_snapshot_has_all_devices_of_the_group) {
  helper other = board_with(take_from_last);
  see("1");
  REQUIRE_OK(openreg_ledger_reserve(0, 8 * MIB));
  openreg_ledger_snapshot *group = own_group();
  const uint64_t used[] = {0, 8 * MIB, 40 * MIB};
  const char *const profiles[] = {"4x1024", "5x1024", "6x1024"};
  REQUIRE(group->process_count == 2);
  for (int i = 0; i < 3; i++) {
    unsigned char uuid[OPENREG_UUID_BYTES];
    openreg_device_make_uuid(child_group(), i, uuid);
    REQUIRE(group->devices[i].used_bytes == used[i]);
    REQUIRE(group->processes[0].bytes[i] == (i == 2 ? used[i] : 0));
    REQUIRE(group->processes[1].bytes[i] == (i == 1 ? used[i] : 0));
    REQUIRE(strcmp(group->devices[i].profile, profiles[i]) == 0);
    REQUIRE(memcmp(group->devices[i].uuid, uuid, sizeof uuid) == 0);
  }
  openreg_ledger_free_snapshots(group, 1);
  helper_dismiss(&other);
}

/* The name of an unnamed group depends on all its devices, so it is the same for all processes with
 * this configuration. */
static void unnamed_body(void) {
  unsetenv("OPENREG_GROUP");
  helper other = board_with(take_from_last);
  see("2,1");
  REQUIRE(used_on(0) == 40 * MIB);
  helper_dismiss(&other);
}

static void visible_devices_do_not_change_the_group(void **state) {
  (void)state;
  child_expect_pass(unnamed_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=62M,60M,64M",
                                "OPENREG_PROFILE=7x1024"));
}

/* 2 KiB for each of the last device's 6 x 1024 threads. */
static void contexts_body(void) {
  see("2,0");
  REQUIRE_OK(openreg_device_create_context(0));
  openreg_ledger_snapshot *group = own_group();
  REQUIRE(group->devices[0].used_bytes == 0 && group->devices[1].used_bytes == 0);
  REQUIRE(group->devices[2].used_bytes == 12 * MIB);
  openreg_ledger_free_snapshots(group, 1);
}

static void a_context_has_the_size_in_the_devices_profile(void **state) {
  (void)state;
  child_expect_pass(contexts_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=64M",
                                "OPENREG_PROFILE=4x1024,5x1024,6x1024", "OPENREG_GPU_OVERHEAD=1"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_shared_whatever_index_a_device_has),
      cmocka_unit_test(memory_of_a_killed_process_is_free_again),
      cmocka_unit_test(a_snapshot_has_all_devices_of_the_group),
      cmocka_unit_test(visible_devices_do_not_change_the_group),
      cmocka_unit_test(a_context_has_the_size_in_the_devices_profile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
