/* Arenas: two views of memory that is committed on first access and private to the process. */
#define _GNU_SOURCE
#include "devices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

/* The descriptor of a device's memory file, found as another process would find it; -1: none. */
static int memory_file(int device) {
  char wanted[64];
  snprintf(wanted, sizeof wanted, "/memfd:openreg:%d (deleted)", device);
  for (int file = 0; file < 1024; file++) {
    char link[64], target[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, target, sizeof target - 1) > 0 && strcmp(target, wanted) == 0)
      return file;
  }
  return -1;
}

static size_t committed_bytes(int device) {
  struct stat status;
  REQUIRE(fstat(memory_file(device), &status) == 0);
  return (size_t)status.st_blocks * 512;
}

/* ---- shape ----------------------------------------------------------------------------------- */

static void arenas_body(void) {
  for (int i = 0; i < 3; i++) {
    void *base;
    size_t bytes;
    REQUIRE_OK(openreg_arena_get(i, &base, &bytes));
    REQUIRE(bytes >= 14 * 64 * MIB && bytes == arena_bytes());
    REQUIRE((uintptr_t)base % (2 * MIB) == 0);
  }
}

static void each_arena_has_many_times_its_capacity_and_is_aligned(void **state) {
  (void)state;
  child_expect_pass(arenas_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=6M,2M,64M"));
}

static void device_of_body(void) {
  int on_the_stack = 0;
  REQUIRE(openreg_arena_device_of(&on_the_stack) == -1);
  REQUIRE(!openreg_is_initialized());
  for (int i = 0; i < 3; i++) {
    void *base;
    size_t bytes;
    REQUIRE_OK(openreg_arena_get(i, &base, &bytes));
    char *first = base;
    REQUIRE(openreg_arena_device_of(first) == i);
    REQUIRE(openreg_arena_device_of(first + bytes / 2 + 1) == i);
    REQUIRE(openreg_arena_device_of(first + bytes - 1) == i);
    REQUIRE(openreg_arena_device_of(first + bytes) != i);
    REQUIRE(openreg_arena_device_of(openreg_kernel_view(first)) == -1);
  }
  REQUIRE(openreg_arena_device_of(base_of(0) - 1) == -1);
  REQUIRE(openreg_arena_device_of(base_of(1) + arena_bytes()) == -1);
  REQUIRE(openreg_arena_device_of(base_of(2) + arena_bytes()) == -1);
  REQUIRE(openreg_arena_device_of(NULL) == -1);
  REQUIRE(openreg_arena_device_of(&on_the_stack) == -1);
}

static void addresses_tell_their_device(void **state) {
  (void)state;
  child_expect_pass(device_of_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=6M,2M,64M"));
}

CHILD_TEST(one_offset_leads_from_every_device_view_to_its_kernel_view) {
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_kernel_offset != 0);
  for (int i = 0; i < 2; i++) {
    char *device_address = base_of(i) + 12345;
    char *kernel_address = openreg_kernel_view(device_address);
    REQUIRE(openreg_device_view(kernel_address) == device_address);
    char seen = 0;
    *kernel_address = (char)(7 + i);
    REQUIRE_OK(openreg_copy(&seen, device_address, 1));
    REQUIRE(seen == 7 + i);
  }
}

static void sixty_four_devices_body(void) {
  for (int i = 0; i < 64; i++) {
    void *base;
    size_t bytes;
    REQUIRE_OK(openreg_arena_get(i, &base, &bytes));
    REQUIRE(bytes >= (size_t)2 * 80 << 30);
    char *last = (char *)base + bytes - 1;
    char written = (char)i, seen = -1;
    REQUIRE(openreg_arena_device_of(last) == i);
    REQUIRE_OK(openreg_copy(last, &written, 1));
    REQUIRE_OK(openreg_copy(&seen, last, 1));
    REQUIRE(seen == written);
  }
}

static void sixty_four_devices_of_80_gib_are_only_addresses(void **state) {
  (void)state;
#ifdef THREAD_SANITIZER
  skip(); /* the thread sanitizer leaves a program 1.5 TiB of addresses for all mappings */
#endif
  child_expect_pass(sixty_four_devices_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=64", "OPENREG_DEVICE_MEMORY=80G"));
}

static void host_access_body(void) {
  REQUIRE_OK(openreg_initialize());
  REQUIRE(openreg_kernel_offset == 0);
  char *base = base_of(1), seen[3] = "";
  REQUIRE(openreg_kernel_view(base) == base);
  REQUIRE_OK(openreg_copy(base, "ab", 3));
  REQUIRE(base[1] == 'b');
  base[0] = 'x';
  REQUIRE_OK(openreg_copy(seen, base, 3));
  REQUIRE(strcmp(seen, "xb") == 0);
  REQUIRE(openreg_arena_device_of(base) == 1);
}

static void with_host_access_the_views_are_one(void **state) {
  (void)state;
  child_expect_pass(host_access_body,
                    ENVIRONMENT("OPENREG_DEVICE_MEMORY=4M", "OPENREG_HOST_ACCESS=1"));
}

/* ---- pages ----------------------------------------------------------------------------------- */

CHILD_TEST(nothing_is_committed_until_it_is_touched) {
  char *base = base_of(0);
  REQUIRE(committed_bytes(0) == 0);
  REQUIRE(committed_bytes(1) == 0);
  REQUIRE_OK(openreg_fill(base, 1, 3 * PAGE));
  REQUIRE(committed_bytes(0) >= 3 * PAGE);
  REQUIRE(committed_bytes(0) <= 2 * MIB);
  REQUIRE(committed_bytes(1) == 0);
}

CHILD_TEST(fresh_memory_reads_as_zeros) {
  char seen[PAGE];
  memset(seen, 0xAA, sizeof seen);
  REQUIRE_OK(openreg_copy(seen, base_of(1) + MIB + 11, sizeof seen));
  for (int i = 0; i < PAGE; i++)
    REQUIRE(seen[i] == 0);
}

CHILD_TEST(release_returns_only_its_pages) {
  char *base = base_of(0), seen = 0;
  REQUIRE_OK(openreg_fill(base, 0x5A, 8 * MIB));
  size_t before = committed_bytes(0);
  REQUIRE_OK(openreg_arena_release(base + 2 * MIB, 4 * MIB));
  REQUIRE(committed_bytes(0) == before - 4 * MIB);
  static const struct {
    size_t offset;
    char value;
  } expected[] = {{0, 0x5A},        {2 * MIB - 1, 0x5A}, {2 * MIB, 0},
                  {6 * MIB - 1, 0}, {6 * MIB, 0x5A},     {8 * MIB - 1, 0x5A}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    REQUIRE_OK(openreg_copy(&seen, base + expected[i].offset, 1));
    REQUIRE(seen == expected[i].value);
  }
}

CHILD_TEST(released_memory_can_be_used_again) {
  char *base = base_of(1), seen = 0;
  REQUIRE_OK(openreg_fill(base, 1, 64 * MIB));
  REQUIRE_OK(openreg_arena_release(base, 64 * MIB));
  REQUIRE(committed_bytes(1) == 0);
  REQUIRE_OK(openreg_fill(base + 64 * MIB - 1, 9, 1));
  REQUIRE_OK(openreg_copy(&seen, base + 64 * MIB - 1, 1));
  REQUIRE(seen == 9);
}

CHILD_TEST(release_of_nothing_is_allowed) {
  REQUIRE_OK(openreg_arena_release(base_of(0), 0));
}

CHILD_TEST(release_rejects_partial_pages) {
  char *base = base_of(0);
  size_t page = page_bytes();
  REQUIRE(openreg_arena_release(base + 1, page) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_arena_release(base, page - 1) == OPENREG_INVALID_ARGUMENT);
  char expected[64];
  snprintf(expected, sizeof expected, "multiples of the page size, %zu bytes", page);
  REQUIRE(strstr(openreg_last_error(), expected) != NULL);
}

CHILD_TEST(release_rejects_ranges_outside_one_arena) {
  enum { LARGEST_PAGE = 64 << 10 };
  static char host[2 * LARGEST_PAGE] __attribute__((aligned(LARGEST_PAGE)));
  size_t page = page_bytes();
  REQUIRE(openreg_arena_release(host, page) == OPENREG_INVALID_ADDRESS); /* not initialized */
  char *base = base_of(0);
  REQUIRE(openreg_arena_release(host, page) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_arena_release(NULL, page) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_arena_release(base, arena_bytes() + page) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_arena_release(base + arena_bytes() - page, 2 * page) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_arena_release(base - page, 2 * page) == OPENREG_INVALID_ADDRESS);
  REQUIRE(openreg_arena_release(base, (size_t)0 - page) == OPENREG_INVALID_ADDRESS);
}

CHILD_TEST(there_is_no_arena_of_a_device_that_does_not_exist) {
  void *base = &base;
  size_t bytes = 1;
  REQUIRE(openreg_arena_get(-1, &base, &bytes) == OPENREG_INVALID_DEVICE);
  REQUIRE(openreg_arena_get(2, &base, &bytes) == OPENREG_INVALID_DEVICE);
  REQUIRE(strcmp(openreg_last_error(), "openreg: invalid device ordinal 2: expected 0 to 1") == 0);
  REQUIRE(base == &base && bytes == 1);
}

/* ---- properties of the mappings -------------------------------------------------------------- */

CHILD_TEST(memory_files_cannot_change_size_and_close_on_exec) {
  REQUIRE_OK(openreg_initialize());
  int file = memory_file(1);
  REQUIRE(ftruncate(file, 2 * MIB) != 0 && errno == EPERM);
  REQUIRE(ftruncate(file, 128 * MIB) != 0 && errno == EPERM);
  REQUIRE(fcntl(file, F_GETFD) & FD_CLOEXEC);
}

/* Reads the VmFlags line of the mapping that starts at `address` from /proc/self/smaps. */
static void read_flags(const void *address, char *flags, size_t flags_bytes) {
  char line[512], start[32];
  bool inside = false;
  snprintf(start, sizeof start, "%lx-", (unsigned long)address);
  FILE *maps = fopen("/proc/self/smaps", "r");
  REQUIRE(maps != NULL);
  flags[0] = '\0';
  while (fgets(line, sizeof line, maps) != NULL) {
    if (strncmp(line, start, strlen(start)) == 0)
      inside = true;
    if (inside && strncmp(line, "VmFlags:", 8) == 0) {
      snprintf(flags, flags_bytes, "%s", line);
      break;
    }
  }
  fclose(maps);
}

CHILD_TEST(both_views_stay_out_of_forks_and_core_files) {
  char flags[512];
  char *views[] = {base_of(1), openreg_kernel_view(base_of(1))};
  for (int i = 0; i < 2; i++) {
    read_flags(views[i], flags, sizeof flags);
    REQUIRE(strstr(flags, " dc ") != NULL); /* do not copy on fork; proc_pid_smaps(5) */
    REQUIRE(strstr(flags, " dd ") != NULL); /* do not include in a core dump */
  }
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Returns the previous limit. */
static rlim_t limit_files(rlim_t count) {
  struct rlimit limit;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  rlim_t before = limit.rlim_cur;
  limit.rlim_cur = count;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  return before;
}

CHILD_TEST(a_failed_initialization_leaves_nothing_and_may_be_repeated) {
  int next_file = dup(STDERR_FILENO);
  REQUIRE(close(next_file) == 0);
  rlim_t limit = limit_files((rlim_t)next_file + 1);
  for (int i = 0; i < 2; i++) {
    REQUIRE(openreg_initialize() == OPENREG_SYSTEM);
    REQUIRE(strstr(openreg_last_error(), "device 1: cannot create a memory file: "
                                         "Too many open files") != NULL);
    REQUIRE(!openreg_is_initialized());
    REQUIRE(dup(STDERR_FILENO) == next_file && close(next_file) == 0);
  }
  limit_files(limit);
  char *base = base_of(1), seen = 0;
  REQUIRE_OK(openreg_fill(base, 3, 1));
  REQUIRE_OK(openreg_copy(&seen, base, 1));
  REQUIRE(seen == 3);
}

static void too_many_addresses_body(void) {
  REQUIRE(openreg_initialize() == OPENREG_SYSTEM);
  REQUIRE(strstr(openreg_last_error(), "addresses for 64 devices: Cannot allocate memory") != NULL);
  REQUIRE(strstr(openreg_last_error(), "OPENREG_DEVICE_MEMORY") != NULL);
}

static void more_memory_than_there_are_addresses_is_an_error(void **state) {
  (void)state;
  child_expect_pass(too_many_addresses_body,
                    ENVIRONMENT("OPENREG_DEVICE_COUNT=64", "OPENREG_DEVICE_MEMORY=64T"));
}

/* ---- forks ----------------------------------------------------------------------------------- */

static char *parents_base;

static void in_forked_child(void) {
  void *base;
  size_t bytes;
  REQUIRE(openreg_arena_get(0, &base, &bytes) == OPENREG_BAD_FORK);
  REQUIRE(openreg_arena_release(parents_base, PAGE) == OPENREG_BAD_FORK);
  REQUIRE(memory_file(0) == -1);
}

CHILD_TEST(a_forked_child_has_no_arena_and_no_file) {
  parents_base = base_of(0);
  char seen = 0;
  REQUIRE_OK(openreg_fill(parents_base, 4, PAGE));
  child_fork_and_require(in_forked_child);
  REQUIRE_OK(openreg_copy(&seen, parents_base, 1));
  REQUIRE(seen == 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_arena_has_many_times_its_capacity_and_is_aligned),
      cmocka_unit_test(addresses_tell_their_device),
      cmocka_unit_test(one_offset_leads_from_every_device_view_to_its_kernel_view),
      cmocka_unit_test(sixty_four_devices_of_80_gib_are_only_addresses),
      cmocka_unit_test(with_host_access_the_views_are_one),
      cmocka_unit_test(nothing_is_committed_until_it_is_touched),
      cmocka_unit_test(fresh_memory_reads_as_zeros),
      cmocka_unit_test(release_returns_only_its_pages),
      cmocka_unit_test(released_memory_can_be_used_again),
      cmocka_unit_test(release_of_nothing_is_allowed),
      cmocka_unit_test(release_rejects_partial_pages),
      cmocka_unit_test(release_rejects_ranges_outside_one_arena),
      cmocka_unit_test(there_is_no_arena_of_a_device_that_does_not_exist),
      cmocka_unit_test(memory_files_cannot_change_size_and_close_on_exec),
      cmocka_unit_test(both_views_stay_out_of_forks_and_core_files),
      cmocka_unit_test(a_failed_initialization_leaves_nothing_and_may_be_repeated),
      cmocka_unit_test(more_memory_than_there_are_addresses_is_an_error),
      cmocka_unit_test(a_forked_child_has_no_arena_and_no_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
