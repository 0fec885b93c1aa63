/* Processes that see different devices of one group: what one has, the others see where it is. */
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
  REQUIRE_OK(openreg_ledger_take(0, 40 * MIB));
  report(0);
  await_cue();
}

static void take_from_last_and_see_others(void) {
  take_from_last();
  REQUIRE(used_on(0) == 48 * MIB);
  REQUIRE(openreg_ledger_take(0, 17 * MIB) == OPENREG_OUT_OF_MEMORY);
  openreg_ledger_give(0, 40 * MIB);
  report(0);
  await_cue();
}

VIEWS_TEST(memory_of_a_device_is_shared_whatever_it_is_called) {
  actor other = board_with(take_from_last_and_see_others);
  see("1,2");
  REQUIRE(used_on(0) == 0 && used_on(1) == 40 * MIB);
  REQUIRE(openreg_ledger_take(1, 25 * MIB) == OPENREG_OUT_OF_MEMORY);
  REQUIRE_OK(openreg_ledger_take(1, 8 * MIB));
  REQUIRE_OK(openreg_ledger_take(0, 64 * MIB));
  actor_step(&other);
  REQUIRE(used_on(0) == 64 * MIB && used_on(1) == 8 * MIB);
  actor_dismiss(&other);
}

VIEWS_TEST(memory_of_a_killed_process_is_free_again) {
  actor other = board_with(take_from_last);
  see("0,2");
  REQUIRE(used_on(1) == 40 * MIB);
  actor_kill(&other);
  REQUIRE(used_on(1) == 0);
  REQUIRE_OK(openreg_ledger_take(1, 64 * MIB));
}

VIEWS_TEST(a_snapshot_has_all_devices_of_the_group) {
  actor other = board_with(take_from_last);
  see("1");
  REQUIRE_OK(openreg_ledger_take(0, 8 * MIB));
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
  actor_dismiss(&other);
}

/* A group is named after all its devices, so that it is the same for all who are configured alike.
 */
static void unnamed_body(void) {
  unsetenv("OPENREG_GROUP");
  actor other = board_with(take_from_last);
  see("2,1");
  REQUIRE(used_on(0) == 40 * MIB);
  actor_dismiss(&other);
}

static void what_is_seen_does_not_make_another_group(void **state) {
  (void)state;
  child_expect_pass(unnamed_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=62M,60M,64M",
                                "OPENREG_PROFILE=7x1024"));
}

/* 2 KiB for each of 6 x 1024 threads of the last device. */
static void contexts_body(void) {
  see("2,0");
  REQUIRE_OK(openreg_device_take_context(0));
  openreg_ledger_snapshot *group = own_group();
  REQUIRE(group->devices[0].used_bytes == 0 && group->devices[1].used_bytes == 0);
  REQUIRE(group->devices[2].used_bytes == 12 * MIB);
  openreg_ledger_free_snapshots(group, 1);
}

static void a_context_is_as_large_as_the_devices_profile_says(void **state) {
  (void)state;
  child_expect_pass(contexts_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=64M",
                                "OPENREG_PROFILE=4x1024,5x1024,6x1024", "OPENREG_GPU_OVERHEAD=1"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_of_a_device_is_shared_whatever_it_is_called),
      cmocka_unit_test(memory_of_a_killed_process_is_free_again),
      cmocka_unit_test(a_snapshot_has_all_devices_of_the_group),
      cmocka_unit_test(what_is_seen_does_not_make_another_group),
      cmocka_unit_test(a_context_is_as_large_as_the_devices_profile_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
