/* Visible devices: how the list is parsed, and that everything uses it. */
#include "child.h"
#include "device/process/visible_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* ---- parsing the list ------------------------------------------------------------------------ */

static const char *pretended_type, *pretended_list;

static const char *pretend_getenv(const char *name) {
  if (strcmp(name, "OPENREG_DEVICE_TYPE") == 0)
    return pretended_type;
  return strcmp(name, "OPENREG_VISIBLE_DEVICES") == 0 ? pretended_list : NULL;
}

static struct openreg_visible read_list_of(int device_count, const char *list) {
  openreg_config config = {.device_count = device_count, .group = "visible"};
  struct openreg_visible visible;
  memset(&visible, 0x55, sizeof visible);
  pretended_list = list;
  openreg_visible_read(pretend_getenv, &config, &visible);
  for (int number = 0; number < OPENREG_MAX_DEVICES; number++) {
    int device = visible.device_of[number];
    assert_true(device == -1 || (device >= 0 && device < visible.count));
    assert_true(device == -1 || visible.group_index_of[device] == number);
  }
  for (int device = 0; device < visible.count; device++)
    assert_int_equal(visible.device_of[visible.group_index_of[device]], device);
  return visible;
}

/* `numbers` are digits: "20" means 2 and then 0. */
static void expect(const char *list, const char *numbers) {
  struct openreg_visible visible = read_list_of(4, list);
  char seen[OPENREG_MAX_DEVICES + 1] = "";
  for (int i = 0; i < visible.count; i++)
    seen[i] = (char)('0' + visible.group_index_of[i]);
  if (strcmp(seen, numbers) != 0)
    fail_msg("\"%s\" makes \"%s\" visible, not \"%s\"", list, seen, numbers);
}

static void all_devices_are_visible_by_default(void **state) {
  (void)state;
  expect(NULL, "0123");
  struct openreg_visible all = read_list_of(OPENREG_MAX_DEVICES, NULL);
  assert_int_equal(all.count, OPENREG_MAX_DEVICES);
  for (int i = 0; i < OPENREG_MAX_DEVICES; i++)
    assert_int_equal(all.group_index_of[i], i);
}

static void an_empty_list_makes_none_visible(void **state) {
  (void)state;
  expect("", "");
  expect(" ", "");
}

static void indices_select_devices_and_their_order(void **state) {
  (void)state;
  expect("0", "0");
  expect("3", "3");
  expect("2,0", "20");
  expect("3,2,1,0", "3210");
}

static void an_index_is_the_number_at_the_start_of_an_item(void **state) {
  (void)state;
  expect("1gpu2,2ampere", "12");
  expect(" 2, +3,\t-0", "230");
  expect("01,0x1", "10");
  expect("2.5", "2");
}

static void an_invalid_item_ends_the_list(void **state) {
  (void)state;
  expect("0,2,-1,1", "02");
  expect("-1", "");
  expect("1,4,2", "1");
  expect("4", "");
  expect("2,99999999999999999999,1", "2");
  expect("2,-99999999999999999999,1", "2");
  expect("3,one,2", "3");
  expect("one,2", "");
  expect("1,,2", "1");
  expect("1,", "1");
  expect(",1", "");
  expect("1, ,2", "1");
  expect("0-2", "0");
  expect("1;2", "1");
}

static void a_device_that_is_listed_twice_makes_none_visible(void **state) {
  (void)state;
  expect("0,0", "");
  expect("0,1,2,1", "");
  expect("1,01", "");
  expect("0,-1,0", "0");
  expect("0,4,0", "0");
}

/* The beginning of a device's UUID, as nvidia-smi prints it; 36 characters are the whole UUID. */
static const char *uuid_of(int number, int characters) {
  static char texts[8][48];
  static int next;
  char *text = texts[next++ % 8];
  unsigned char uuid[OPENREG_UUID_BYTES];
  char written[OPENREG_UUID_TEXT_BYTES];
  openreg_device_make_uuid("group-visible", number, uuid);
  openreg_device_write_uuid(uuid, written);
  snprintf(text, sizeof texts[0], "GPU-%.*s", characters, written);
  return text;
}

static void expect_uuids(const char *numbers, const char *first, const char *second,
                         const char *third) {
  char list[256];
  snprintf(list, sizeof list, "%s,%s,%s", first, second, third);
  expect(list, numbers);
}

static void uuids_select_devices_and_their_order(void **state) {
  (void)state;
  expect(uuid_of(3, 36), "3");
  expect_uuids("203", uuid_of(2, 36), uuid_of(0, 36), uuid_of(3, 36));
  expect_uuids("203", uuid_of(2, 12), uuid_of(0, 36), uuid_of(3, 8));
}

static void a_uuid_that_is_unknown_or_ambiguous_ends_the_list(void **state) {
  (void)state;
  expect_uuids("1", uuid_of(1, 36), "GPU-00000000-0000", uuid_of(2, 36));
  expect_uuids("1", uuid_of(1, 36), "GPU-", uuid_of(2, 36));
  expect_uuids("1", uuid_of(1, 36), uuid_of(4, 36), uuid_of(2, 36)); /* there are four devices */
  char longer[64];
  snprintf(longer, sizeof longer, "%s0", uuid_of(2, 36));
  expect_uuids("1", uuid_of(1, 36), longer, uuid_of(2, 36));
  expect("GPU-", "");
  struct openreg_visible only = read_list_of(1, "GPU-");
  assert_int_equal(only.count, 1);
}

static void a_uuid_that_is_listed_twice_makes_none_visible(void **state) {
  (void)state;
  expect_uuids("", uuid_of(1, 36), uuid_of(2, 36), uuid_of(1, 36));
  expect_uuids("", uuid_of(1, 36), uuid_of(2, 36), uuid_of(1, 20));
}

static void a_list_contains_indices_or_uuids(void **state) {
  (void)state;
  expect_uuids("1", uuid_of(1, 36), "2", uuid_of(3, 36));
  expect_uuids("1", "1", uuid_of(2, 36), "3");
  expect_uuids("1", uuid_of(1, 36), " GPU-", uuid_of(3, 36));
  expect_uuids("1", uuid_of(1, 36), "MIG-1", uuid_of(3, 36));
  expect("MIG-GPU-1,0", "");
  expect("gpu-1", "");
}

static const char *both_getenv(const char *name) {
  if (strcmp(name, "OPENREG_DEVICE_TYPE") == 0)
    return pretended_type;
  return strcmp(name, "CUDA_VISIBLE_DEVICES") == 0 ? "1" : "0";
}

static void the_variable_is_that_of_the_mode(void **state) {
  (void)state;
  static const struct {
    const char *type, *variable;
    int number;
  } cases[] = {{NULL, "OPENREG_VISIBLE_DEVICES", 0},
               {"", "OPENREG_VISIBLE_DEVICES", 0},
               {"openreg", "OPENREG_VISIBLE_DEVICES", 0},
               {"cuda", "CUDA_VISIBLE_DEVICES", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    openreg_config config = {.device_count = 2};
    struct openreg_visible visible;
    pretended_type = cases[i].type;
    openreg_visible_read(both_getenv, &config, &visible);
    assert_int_equal(visible.count, 1);
    assert_int_equal(visible.group_index_of[0], cases[i].number);
    assert_string_equal(visible.variable, cases[i].variable);
  }
  pretended_type = NULL;
}

/* ---- when the list is read ------------------------------------------------------------------- */

static int count_devices(void) {
  int count = -1;
  REQUIRE_OK(openreg_device_count(&count));
  return count;
}

CHILD_TEST(the_list_is_read_on_first_use_and_never_again) {
  const openreg_config *config;
  REQUIRE_OK(openreg_config_get(&config));
  setenv("OPENREG_VISIBLE_DEVICES", "1", 1);
  REQUIRE(count_devices() == 1);
  setenv("OPENREG_VISIBLE_DEVICES", "0,1", 1);
  REQUIRE(count_devices() == 1);
  openreg_device_properties properties;
  REQUIRE_OK(openreg_device_get_properties(0, &properties));
  REQUIRE(properties.group_index == 1);
  REQUIRE(config->device_count == 2);
}

static void sees_one(void) {
  openreg_device_properties properties;
  setenv("OPENREG_VISIBLE_DEVICES", "0,1", 1);
  REQUIRE(count_devices() == 1);
  REQUIRE_OK(openreg_device_get_properties(0, &properties));
  REQUIRE(properties.group_index == 1);
}

static void sees_both(void) {
  setenv("OPENREG_VISIBLE_DEVICES", "0,1", 1);
  REQUIRE(count_devices() == 2);
}

CHILD_TEST(a_child_keeps_the_choice_its_parent_read) {
  setenv("OPENREG_VISIBLE_DEVICES", "1", 1);
  child_fork_and_require(sees_both);
  REQUIRE(count_devices() == 1);
  child_fork_and_require(sees_one);
}

/* ---- effects --------------------------------------------------------------------------------- */

#define THREE_DEVICES(list)                                                                        \
  ENVIRONMENT("OPENREG_DEVICE_COUNT=3", "OPENREG_DEVICE_MEMORY=32M,64M,128M",                      \
              "OPENREG_PROFILE=h100,t4,48x1536", "HWLOC_SYNTHETIC=numa:3 core:1 pu:1",             \
              "OPENREG_VISIBLE_DEVICES=" list)

static void reversed_body(void) {
  openreg_device_properties of[2];
  uint64_t free_bytes, total_bytes;
  bool can_access;
  REQUIRE(count_devices() == 2);
  REQUIRE(openreg_device_set_current(2) == OPENREG_INVALID_DEVICE);
  REQUIRE(strcmp(openreg_last_error(), "openreg: invalid device ordinal 2: expected 0 to 1") == 0);
  for (int i = 0; i < 2; i++) {
    unsigned char uuid[OPENREG_UUID_BYTES];
    REQUIRE_OK(openreg_device_get_properties(i, &of[i]));
    openreg_device_make_uuid(child_group(), 2 - i, uuid);
    REQUIRE(of[i].group_index == 2 - i && of[i].numa_node == 2 - i);
    REQUIRE(memcmp(of[i].uuid, uuid, sizeof uuid) == 0);
  }
  REQUIRE(strcmp(of[0].profile.key, "48x1536") == 0 && strcmp(of[1].profile.key, "t4") == 0);
  REQUIRE(strcmp(of[0].cpuset, "2") == 0 && strcmp(of[1].cpuset, "1") == 0);
  REQUIRE(of[0].total_memory_bytes == 128 * MIB && of[1].total_memory_bytes == 64 * MIB);
  REQUIRE_OK(openreg_ledger_query(0, &free_bytes, &total_bytes));
  REQUIRE(free_bytes == 128 * MIB && total_bytes == 128 * MIB);
  REQUIRE_OK(openreg_ledger_reserve(1, 64 * MIB));
  REQUIRE(openreg_ledger_reserve(1, 1) == OPENREG_OUT_OF_MEMORY);
  REQUIRE_OK(openreg_ledger_query(0, &free_bytes, &total_bytes));
  REQUIRE(free_bytes == 128 * MIB);
  openreg_ledger_release(1, 64 * MIB);
  REQUIRE_OK(openreg_device_can_access_peer(0, 1, &can_access));
  REQUIRE(can_access);
}

static void devices_are_counted_in_the_order_of_the_list(void **state) {
  (void)state;
  child_expect_pass(reversed_body, THREE_DEVICES("2,1"));
}

static void memory_body(void) {
  void *base[2];
  size_t bytes;
  char byte = 0;
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(openreg_arena_get(i, &base[i], &bytes));
    REQUIRE(openreg_arena_device_of(base[i]) == i);
    REQUIRE_OK(openreg_fill(base[i], i + 1, 4096));
  }
  REQUIRE(openreg_arena_get(2, &base[1], &bytes) == OPENREG_INVALID_DEVICE);
  REQUIRE_OK(openreg_copy(base[1], base[0], 1));
  REQUIRE_OK(openreg_copy(&byte, base[1], 1));
  REQUIRE(byte == 1);
  REQUIRE_OK(openreg_device_synchronize(1));
}

static void visible_devices_have_memory_and_streams(void **state) {
  (void)state;
  child_expect_pass(memory_body, THREE_DEVICES("2,0"));
}

static void cuda_body(void) {
  openreg_device_properties properties;
  REQUIRE(count_devices() == 1);
  REQUIRE_OK(openreg_device_get_properties(0, &properties));
  REQUIRE(properties.group_index == 1);
}

static void with_cuda_as_device_type_cuda_visible_devices_is_read(void **state) {
  (void)state;
  child_expect_pass(cuda_body,
                    ENVIRONMENT("OPENREG_DEVICE_TYPE=cuda", "CUDA_VISIBLE_DEVICES=1",
                                "OPENREG_VISIBLE_DEVICES=0,1", "OPENREG_DEVICE_MEMORY=64M"));
}

/* ---- no devices ------------------------------------------------------------------------------ */

static void require_none(openreg_status status) {
  REQUIRE(status == OPENREG_INVALID_DEVICE);
  REQUIRE(strcmp(openreg_last_error(), "openreg: this process sees no devices: "
                                       "OPENREG_VISIBLE_DEVICES selects none") == 0);
}

static void none_body(void) {
  openreg_device_properties properties;
  openreg_ipc_handle handle = {{0}};
  openreg_event *event;
  void *base;
  size_t bytes;
  int stream;
  REQUIRE(count_devices() == 0);
  require_none(openreg_initialize());
  require_none(openreg_device_set_current(0));
  require_none(openreg_device_get_properties(0, &properties));
  require_none(openreg_arena_get(0, &base, &bytes));
  require_none(openreg_ledger_reserve(0, 1));
  require_none(openreg_stream_from_pool(0, 0, &stream));
  require_none(openreg_stream_synchronize(0, 0));
  require_none(openreg_event_create(0, false, &event));
  require_none(openreg_event_import(&handle, &event));
  REQUIRE(!openreg_is_initialized() && openreg_device_current() == 0);
  openreg_ledger_snapshot *group;
  REQUIRE(openreg_ledger_find_own(false, &group) == OPENREG_NOT_READY);
}

static void a_process_that_sees_no_devices_can_use_none(void **state) {
  (void)state;
  child_expect_pass(none_body, THREE_DEVICES(""));
  child_expect_pass(none_body, THREE_DEVICES("3,0"));
}

static void bad_body(void) {
  int count;
  REQUIRE(openreg_device_count(&count) == OPENREG_INVALID_CONFIGURATION);
  REQUIRE(openreg_initialize() == OPENREG_INVALID_CONFIGURATION);
  REQUIRE(strstr(openreg_last_error(), "OPENREG_DEVICE_COUNT=0") != NULL);
}

static void an_invalid_configuration_is_reported_first(void **state) {
  (void)state;
  child_expect_pass(bad_body, ENVIRONMENT("OPENREG_DEVICE_COUNT=0", "OPENREG_VISIBLE_DEVICES="));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_devices_are_visible_by_default),
      cmocka_unit_test(an_empty_list_makes_none_visible),
      cmocka_unit_test(indices_select_devices_and_their_order),
      cmocka_unit_test(an_index_is_the_number_at_the_start_of_an_item),
      cmocka_unit_test(an_invalid_item_ends_the_list),
      cmocka_unit_test(a_device_that_is_listed_twice_makes_none_visible),
      cmocka_unit_test(uuids_select_devices_and_their_order),
      cmocka_unit_test(a_uuid_that_is_unknown_or_ambiguous_ends_the_list),
      cmocka_unit_test(a_uuid_that_is_listed_twice_makes_none_visible),
      cmocka_unit_test(a_list_contains_indices_or_uuids),
      cmocka_unit_test(the_variable_is_that_of_the_mode),
      cmocka_unit_test(the_list_is_read_on_first_use_and_never_again),
      cmocka_unit_test(a_child_keeps_the_choice_its_parent_read),
      cmocka_unit_test(devices_are_counted_in_the_order_of_the_list),
      cmocka_unit_test(visible_devices_have_memory_and_streams),
      cmocka_unit_test(with_cuda_as_device_type_cuda_visible_devices_is_read),
      cmocka_unit_test(a_process_that_sees_no_devices_can_use_none),
      cmocka_unit_test(an_invalid_configuration_is_reported_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
