/* Copies between host and devices, and fills. */
#include "devices.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static unsigned char pattern(size_t i) {
  return (unsigned char)(i * 2654435761u >> 11);
}

static void require_round_trip(size_t bytes) {
  unsigned char *there = malloc(bytes), *back = malloc(bytes);
  for (size_t i = 0; i < bytes; i++)
    there[i] = pattern(i);
  memset(back, 0xAA, bytes);
  REQUIRE_OK(openreg_copy(base_of(0) + 3, there, bytes));
  REQUIRE_OK(openreg_copy(base_of(1) + 5, base_of(0) + 3, bytes));
  REQUIRE_OK(openreg_copy(back, base_of(1) + 5, bytes));
  REQUIRE(memcmp(there, back, bytes) == 0);
  free(there);
  free(back);
}

CHILD_TEST(bytes_go_from_host_to_device_to_device_to_host) {
  static const size_t sizes[] = {1, 2, 63, 4096, 100001, MIB - 1, MIB, 5 * MIB + 3};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    require_round_trip(sizes[i]);
}

CHILD_TEST(a_copy_within_a_device_is_a_copy) {
  char seen[4] = "";
  REQUIRE_OK(openreg_copy(base_of(0), "abc", 4));
  REQUIRE_OK(openreg_copy(base_of(0) + MIB, base_of(0), 4));
  REQUIRE_OK(openreg_copy(seen, base_of(0) + MIB, 4));
  REQUIRE(strcmp(seen, "abc") == 0);
}

CHILD_TEST(a_copy_between_host_addresses_initializes_nothing) {
  char seen[4] = "";
  REQUIRE_OK(openreg_copy(seen, "abc", 4));
  REQUIRE(strcmp(seen, "abc") == 0);
  REQUIRE(!openreg_is_initialized());
}

CHILD_TEST(a_whole_arena_can_be_copied_to_another) {
  char seen[2] = {0, 0};
  REQUIRE_OK(openreg_fill(base_of(0), 0x11, 64 * MIB));
  REQUIRE_OK(openreg_copy(base_of(1), base_of(0), 64 * MIB));
  REQUIRE_OK(openreg_copy(&seen[0], base_of(1), 1));
  REQUIRE_OK(openreg_copy(&seen[1], base_of(1) + 64 * MIB - 1, 1));
  REQUIRE(seen[0] == 0x11 && seen[1] == 0x11);
}

CHILD_TEST(copying_nothing_touches_nothing) {
  REQUIRE_OK(openreg_copy(NULL, NULL, 0));
  REQUIRE_OK(openreg_copy(base_of(0), NULL, 0));
  REQUIRE_OK(openreg_fill(NULL, 1, 0));
}

CHILD_TEST(null_is_refused) {
  char byte = 0;
  REQUIRE(openreg_copy(NULL, &byte, 1) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strcmp(openreg_last_error(), "openreg: cannot copy 1 bytes to NULL") == 0);
  REQUIRE(openreg_copy(&byte, NULL, 1) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(strcmp(openreg_last_error(), "openreg: cannot copy 1 bytes from NULL") == 0);
  REQUIRE(openreg_fill(NULL, 0, 1) == OPENREG_INVALID_ARGUMENT);
}

CHILD_TEST(ranges_that_cross_the_end_of_an_arena_are_rejected) {
  static char host[4096];
  char *base = base_of(0), *end = base + arena_bytes();
  REQUIRE(openreg_copy(end - 1, host, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_copy(host, end - 1, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_copy(host, base - 1, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_copy(base - 1, host, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(end - 1, 0, 2) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_fill(base, 0, 2 * arena_bytes()) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_copy(host, base, SIZE_MAX) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_copy((void *)(UINTPTR_MAX - 1), host, 16) == OPENREG_INVALID_ADDRESS);
  REQUIRE(strstr(openreg_last_error(), "do not lie within the memory of one device") != NULL);
}

static void spare_addresses_body(void) {
  char host[2];
  REQUIRE(openreg_copy(base_of(0) + arena_bytes(), host, 1) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_copy(host, base_of(1) - 1, 1) == OPENREG_INVALID_ADDRESS);
}

static void addresses_between_arenas_are_refused(void **state) {
  (void)state;
  child_expect_pass(spare_addresses_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=2M,64M"));
}

CHILD_TEST(a_fill_sets_its_bytes_and_no_others) {
  unsigned char seen[6];
  REQUIRE_OK(openreg_fill(base_of(0), 0x11, 6));
  REQUIRE_OK(openreg_fill(base_of(0) + 1, 0x2FF, 4));
  REQUIRE_OK(openreg_copy(seen, base_of(0), 6));
  REQUIRE(memcmp(seen, "\x11\xFF\xFF\xFF\xFF\x11", 6) == 0);
}

CHILD_TEST(host_memory_is_not_filled) {
  char host = 1;
  REQUIRE(openreg_fill(&host, 0, 1) == OPENREG_INVALID_ADDRESS);
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_fill(&host, 0, 1) == OPENREG_INVALID_ADDRESS);
  REQUIRE(strstr(openreg_last_error(), "is not in the memory of any device") != NULL);
  REQUIRE(host == 1);
}

static char *parents_base;

static void in_forked_child(void) {
  char host[2] = "";
  REQUIRE(openreg_copy(host, parents_base, 1) == OPENREG_BAD_FORK);
  REQUIRE(openreg_copy(parents_base, host, 1) == OPENREG_BAD_FORK);
  REQUIRE(openreg_fill(parents_base, 0, 1) == OPENREG_BAD_FORK);
}

CHILD_TEST(a_forked_child_cannot_copy) {
  parents_base = base_of(0);
  child_fork_and_require(in_forked_child);
}

#ifndef NDEBUG
static void copy_onto_itself(void) {
  REQUIRE_OK(openreg_copy(base_of(0), base_of(0) + 4095, 4096));
}

static void ranges_that_overlap_are_asserted_against(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGABRT, copy_onto_itself, SMALL_DEVICES);
  assert_non_null(strstr(result.errors, "disjoint"));
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_go_from_host_to_device_to_device_to_host),
      cmocka_unit_test(a_copy_within_a_device_is_a_copy),
      cmocka_unit_test(a_copy_between_host_addresses_initializes_nothing),
      cmocka_unit_test(a_whole_arena_can_be_copied_to_another),
      cmocka_unit_test(copying_nothing_touches_nothing),
      cmocka_unit_test(null_is_refused),
      cmocka_unit_test(ranges_that_cross_the_end_of_an_arena_are_rejected),
      cmocka_unit_test(addresses_between_arenas_are_refused),
      cmocka_unit_test(a_fill_sets_its_bytes_and_no_others),
      cmocka_unit_test(host_memory_is_not_filled),
      cmocka_unit_test(a_forked_child_cannot_copy),
#ifndef NDEBUG
      cmocka_unit_test(ranges_that_overlap_are_asserted_against),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
