/* The configuration variables: valid values, and messages for invalid ones. */
#include "child.h"
#include "device/process/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB           ((uint64_t)1 << 20)
#define GIB           ((uint64_t)1 << 30)
#define MACHINE_BYTES (100 * GIB)

/* The current environment: name, value, name, value, NULL. */
static const char *const *pretended;

static const char *pretend_getenv(const char *name) {
  for (int i = 0; pretended[i] != NULL; i += 2) {
    if (strcmp(pretended[i], name) == 0)
      return pretended[i + 1];
  }
  return NULL;
}

static openreg_status read_machine(const char *const *variables, uint64_t machine_bytes,
                                   openreg_config *config) {
  pretended = variables;
  memset(config, 0x55, sizeof *config);
  return openreg_config_read(pretend_getenv, machine_bytes, config);
}

#define READ(config, ...)                                                                          \
  read_machine((const char *const[]){__VA_ARGS__, NULL}, MACHINE_BYTES, config)

static void an_empty_environment_gives_the_defaults(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, NULL), OPENREG_OK);
  assert_int_equal(config.device_count, 2);
  for (int i = 0; i < 2; i++) {
    assert_string_equal(config.profiles[i].key, "h100");
    assert_int_equal(config.memory_bytes[i], 50 * GIB);
  }
  assert_string_equal(config.group, "");
  assert_false(config.launch_blocking);
  assert_false(config.host_access);
  assert_false(config.debug_memory);
  assert_false(config.gpu_overhead);
}

static void an_empty_value_counts_as_not_set(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_DEVICE_COUNT", "", "OPENREG_DEVICE_MEMORY", "",
                        "OPENREG_PROFILE", "", "OPENREG_GROUP", "", "OPENREG_LAUNCH_BLOCKING", "",
                        "OPENREG_HOST_ACCESS", "", "OPENREG_DEBUG_MEMORY", "",
                        "OPENREG_GPU_OVERHEAD", ""),
                   OPENREG_OK);
  assert_int_equal(config.device_count, 2);
  assert_string_equal(config.profiles[1].key, "h100");
}

static void device_counts_from_1_to_64_are_accepted(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_DEVICE_COUNT", "1"), OPENREG_OK);
  assert_int_equal(config.device_count, 1);
  assert_int_equal(READ(&config, "OPENREG_DEVICE_COUNT", "64"), OPENREG_OK);
  assert_int_equal(config.device_count, 64);
  assert_string_equal(config.profiles[63].key, "h100");
}

static void sizes_are_taken_in_every_spelling_and_rounded_down(void **state) {
  (void)state;
  static const struct {
    const char *value;
    uint64_t bytes;
  } cases[] = {
      {"2097152", 2 * MIB},  {"2097152B", 2 * MIB}, {"4194303", 2 * MIB}, {"2M", 2 * MIB},
      {"3M", 2 * MIB},       {"512m", 512 * MIB},   {"512MB", 512 * MIB}, {"512MiB", 512 * MIB},
      {"512mib", 512 * MIB}, {"8G", 8 * GIB},       {"8gb", 8 * GIB},     {"4096K", 4 * MIB},
      {"4096kiB", 4 * MIB},  {"1T", 1024 * GIB},    {"64T", 65536 * GIB}, {"0002M", 2 * MIB},
      {"2048k", 2 * MIB},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    openreg_config config;
    assert_int_equal(READ(&config, "OPENREG_DEVICE_MEMORY", cases[i].value), OPENREG_OK);
    assert_int_equal(config.memory_bytes[0], cases[i].bytes);
    assert_int_equal(config.memory_bytes[1], cases[i].bytes);
  }
}

static void a_list_has_one_value_per_device(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_DEVICE_COUNT", "3", "OPENREG_DEVICE_MEMORY", "8G,2M,1G",
                        "OPENREG_PROFILE", "t4,48x1536,A100-80GB"),
                   OPENREG_OK);
  assert_int_equal(config.memory_bytes[0], 8 * GIB);
  assert_int_equal(config.memory_bytes[1], 2 * MIB);
  assert_int_equal(config.memory_bytes[2], GIB);
  assert_string_equal(config.profiles[0].name, "Tesla T4");
  assert_int_equal(config.profiles[1].multiprocessor_count, 48);
  assert_int_equal(config.profiles[1].max_threads_per_multiprocessor, 1536);
  assert_string_equal(config.profiles[2].key, "a100-80gb");
}

static void capacity_is_the_smaller_of_the_profile_and_the_share(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_DEVICE_COUNT", "3", "OPENREG_PROFILE", "t4,h100,48x1536"),
                   OPENREG_OK);
  assert_int_equal(config.memory_bytes[0], 15102 * MIB);
  uint64_t share = MACHINE_BYTES / 3 / (2 * MIB) * (2 * MIB);
  assert_int_equal(config.memory_bytes[1], share);
  assert_int_equal(config.memory_bytes[2], share);
}

static void capacity_is_never_zero(void **state) {
  (void)state;
  openreg_config config;
  const char *const variables[] = {NULL};
  assert_int_equal(read_machine(variables, 1, &config), OPENREG_OK);
  assert_int_equal(config.memory_bytes[0], 2 * MIB);
}

static void this_machine_is_shared_when_no_other_is_given(void **state) {
  (void)state;
  openreg_config config;
  const char *const variables[] = {"OPENREG_PROFILE", "48x1536", NULL};
  assert_int_equal(read_machine(variables, 0, &config), OPENREG_OK);
  FILE *info = fopen("/proc/meminfo", "r");
  unsigned long total_kib;
  assert_non_null(info);
  assert_int_equal(fscanf(info, "MemTotal: %lu", &total_kib), 1);
  fclose(info);
  assert_int_equal(config.memory_bytes[0], total_kib * 1024ul / 2 / (2 * MIB) * (2 * MIB));
}

static void groups_are_names_of_up_to_63_characters(void **state) {
  (void)state;
  openreg_config config;
  const char *longest = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456._-x";
  assert_int_equal(strlen(longest), 63);
  assert_int_equal(READ(&config, "OPENREG_GROUP", longest), OPENREG_OK);
  assert_string_equal(config.group, longest);
}

static void switches_are_0_or_1(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_LAUNCH_BLOCKING", "1", "OPENREG_HOST_ACCESS", "0"),
                   OPENREG_OK);
  assert_true(config.launch_blocking);
  assert_false(config.host_access);
  assert_int_equal(READ(&config, "OPENREG_LAUNCH_BLOCKING", "0", "OPENREG_HOST_ACCESS", "1"),
                   OPENREG_OK);
  assert_false(config.launch_blocking);
  assert_true(config.host_access);
}

static void gpu_overhead_is_read(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_GPU_OVERHEAD", "1"), OPENREG_OK);
  assert_true(config.gpu_overhead);
  assert_int_equal(READ(&config, "OPENREG_GPU_OVERHEAD", "0"), OPENREG_OK);
  assert_false(config.gpu_overhead);
}

static void debugging_memory_makes_launches_blocking(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_DEBUG_MEMORY", "1", "OPENREG_LAUNCH_BLOCKING", "0"),
                   OPENREG_OK);
  assert_true(config.debug_memory);
  assert_true(config.launch_blocking);
  assert_int_equal(READ(&config, "OPENREG_DEBUG_MEMORY", "0", "OPENREG_LAUNCH_BLOCKING", "1"),
                   OPENREG_OK);
  assert_false(config.debug_memory);
  assert_true(config.launch_blocking);
}

/* ---- groups ---------------------------------------------------------------------------------- */

#define NAME(name, ...)                                                                            \
  do {                                                                                             \
    openreg_config config;                                                                         \
    assert_int_equal(READ(&config, __VA_ARGS__), OPENREG_OK);                                      \
    openreg_config_name_group(&config, name);                                                      \
  } while (0)

static void a_named_group_has_that_name(void **state) {
  (void)state;
  char name[OPENREG_GROUP_NAME_BYTES];
  NAME(name, "OPENREG_GROUP", "alike-0123456789abcdef");
  assert_string_equal(name, "group-alike-0123456789abcdef");
}

/* The number is FNV-1a of 0x8000000 and "h100" with its zero byte, twice, computed elsewhere. */
static void an_unnamed_group_is_named_after_its_devices(void **state) {
  (void)state;
  char name[OPENREG_GROUP_NAME_BYTES];
  NAME(name, "OPENREG_DEVICE_MEMORY", "128M");
  assert_string_equal(name, "alike-5f6655d9b17e024b");
}

static void groups_differ_by_number_capacity_and_profile_of_devices(void **state) {
  (void)state;
  char names[6][OPENREG_GROUP_NAME_BYTES];
  NAME(names[0], "OPENREG_DEVICE_MEMORY", "128M");
  NAME(names[1], "OPENREG_DEVICE_MEMORY", "128M", "OPENREG_DEVICE_COUNT", "3");
  NAME(names[2], "OPENREG_DEVICE_MEMORY", "128M,130M");
  NAME(names[3], "OPENREG_DEVICE_MEMORY", "130M,128M");
  NAME(names[4], "OPENREG_DEVICE_MEMORY", "128M", "OPENREG_PROFILE", "t4");
  NAME(names[5], "OPENREG_DEVICE_MEMORY", "128M", "OPENREG_PROFILE", "h100,t4");
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < i; j++)
      assert_string_not_equal(names[i], names[j]);
}

static void process_settings_do_not_change_the_group(void **state) {
  (void)state;
  char first[OPENREG_GROUP_NAME_BYTES], second[OPENREG_GROUP_NAME_BYTES];
  NAME(first, "OPENREG_DEVICE_MEMORY", "128M");
  NAME(second, "OPENREG_DEVICE_MEMORY", "131072K,128M", "OPENREG_PROFILE", "H100",
       "OPENREG_HOST_ACCESS", "1", "OPENREG_DEBUG_MEMORY", "1", "OPENREG_GPU_OVERHEAD", "1",
       "OPENREG_UNSUPPORTED_DTYPES", "float64");
  assert_string_equal(first, second);
}

static void bad_values_are_refused_with_what_is_allowed(void **state) {
  (void)state;
  static const char *const memory = "a size such as 8G or 512M, from 2M to 64T, for all devices";
  static const char *const group = "1 to 63 letters, digits, '_', '.' or '-'";
  static const char *const operators = "operators such as aten::svd or aten::add.Tensor, separated";
  static const char *const dtypes = "dtypes such as float64 or bfloat16, separated by commas";
  static const struct {
    const char *name, *value, *allowed;
  } cases[] = {
      {"OPENREG_DEVICE_COUNT", "0", "1 to 64"},
      {"OPENREG_DEVICE_COUNT", "65", "1 to 64"},
      {"OPENREG_DEVICE_COUNT", "-1", "1 to 64"},
      {"OPENREG_DEVICE_COUNT", "+2", "1 to 64"},
      {"OPENREG_DEVICE_COUNT", " 2", "1 to 64"},
      {"OPENREG_DEVICE_COUNT", "2x", "1 to 64"},
      {"OPENREG_DEVICE_COUNT", "two", "1 to 64"},
      {"OPENREG_DEVICE_COUNT", "18446744073709551617", "1 to 64"},
      {"OPENREG_DEVICE_MEMORY", "0", memory},
      {"OPENREG_DEVICE_MEMORY", "G", memory},
      {"OPENREG_DEVICE_MEMORY", "1M", memory},
      {"OPENREG_DEVICE_MEMORY", "2097151", memory},
      {"OPENREG_DEVICE_MEMORY", "65T", memory},
      {"OPENREG_DEVICE_MEMORY", "99999999999999999999", memory},
      {"OPENREG_DEVICE_MEMORY", "8P", memory},
      {"OPENREG_DEVICE_MEMORY", "8GG", memory},
      {"OPENREG_DEVICE_MEMORY", "8iB", memory},
      {"OPENREG_DEVICE_MEMORY", "8Gi", memory},
      {"OPENREG_DEVICE_MEMORY", "8 G", memory},
      {"OPENREG_DEVICE_MEMORY", "-8G", memory},
      {"OPENREG_DEVICE_MEMORY", "1.5G", memory},
      {"OPENREG_DEVICE_MEMORY", "8G,", memory},
      {"OPENREG_DEVICE_MEMORY", ",8G", memory},
      {"OPENREG_DEVICE_MEMORY", "8G,8G,8G", memory},
      {"OPENREG_GROUP", "with space", group},
      {"OPENREG_GROUP", "a/b", group},
      {"OPENREG_GROUP", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456._-xy", group},
      {"OPENREG_LAUNCH_BLOCKING", "2", "0 or 1"},
      {"OPENREG_LAUNCH_BLOCKING", "yes", "0 or 1"},
      {"OPENREG_HOST_ACCESS", "01", "0 or 1"},
      {"OPENREG_DEBUG_MEMORY", "on", "0 or 1"},
      {"OPENREG_GPU_OVERHEAD", "2", "0 or 1"},
      {"OPENREG_HOST_ACCESS", "true", "0 or 1"},
      {"OPENREG_BLOCK_OPERATORS", "svd", operators},
      {"OPENREG_BLOCK_OPERATORS", "aten:svd", operators},
      {"OPENREG_BLOCK_OPERATORS", "aten::", operators},
      {"OPENREG_BLOCK_OPERATORS", "::svd", operators},
      {"OPENREG_BLOCK_OPERATORS", "aten::add.", operators},
      {"OPENREG_BLOCK_OPERATORS", "aten::add.Tensor.x", operators},
      {"OPENREG_BLOCK_OPERATORS", "aten::add, aten::sub", operators},
      {"OPENREG_BLOCK_OPERATORS", "aten::add,", operators},
      {"OPENREG_BLOCK_OPERATORS", ",", operators},
      {"OPENREG_UNSUPPORTED_DTYPES", "double", dtypes},
      {"OPENREG_UNSUPPORTED_DTYPES", "torch.float64", dtypes},
      {"OPENREG_UNSUPPORTED_DTYPES", "float64,,int8", dtypes},
      {"OPENREG_UNSUPPORTED_DTYPES", "float6", dtypes},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    openreg_config config, untouched;
    memset(&untouched, 0x55, sizeof untouched);
    char expected[512];
    snprintf(expected, sizeof expected, "openreg: %s=%s: expected %s", cases[i].name,
             cases[i].value, cases[i].allowed);
    assert_int_equal(READ(&config, cases[i].name, cases[i].value), OPENREG_INVALID_CONFIGURATION);
    assert_memory_equal(openreg_last_error(), expected, strlen(expected));
    assert_memory_equal(&config, &untouched, sizeof config);
  }
}

static void lists_of_missing_features_are_kept_as_written(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, NULL), OPENREG_OK);
  assert_string_equal(config.block_operators, "");
  assert_string_equal(config.unsupported_dtypes, "");
  assert_int_equal(READ(&config, "OPENREG_BLOCK_OPERATORS", "aten::svd,my_lib::op_2.out",
                        "OPENREG_UNSUPPORTED_DTYPES", "float64,complex128,bool"),
                   OPENREG_OK);
  assert_string_equal(config.block_operators, "aten::svd,my_lib::op_2.out");
  assert_string_equal(config.unsupported_dtypes, "float64,complex128,bool");
}

static void a_list_that_does_not_fit_is_refused(void **state) {
  (void)state;
  openreg_config config;
  char list[OPENREG_LIST_BYTES + 1] = "a::";
  memset(list + 3, 'x', sizeof list - 4);
  list[sizeof list - 1] = '\0';
  assert_int_equal(READ(&config, "OPENREG_BLOCK_OPERATORS", list), OPENREG_INVALID_CONFIGURATION);
  assert_non_null(strstr(openreg_last_error(), "4095 characters at most"));
  list[sizeof list - 2] = '\0';
  assert_int_equal(READ(&config, "OPENREG_BLOCK_OPERATORS", list), OPENREG_OK);
  assert_string_equal(config.block_operators, list);
}

static void an_unknown_profile_is_named_and_known_ones_are_listed(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_PROFILE", "t4,h1000"), OPENREG_INVALID_CONFIGURATION);
  assert_non_null(strstr(openreg_last_error(), "openreg: OPENREG_PROFILE=t4,h1000: expected "));
  assert_non_null(strstr(openreg_last_error(), "'h1000' is not allowed"));
  for (int i = 0; openreg_profile_at(i) != NULL; i++)
    assert_non_null(strstr(openreg_last_error(), openreg_profile_at(i)->key));
  assert_non_null(strstr(openreg_last_error(), "48x1536"));
}

static void profiles_are_one_for_all_or_one_per_device(void **state) {
  (void)state;
  openreg_config config;
  assert_int_equal(READ(&config, "OPENREG_DEVICE_COUNT", "4", "OPENREG_PROFILE", "t4,t4"),
                   OPENREG_INVALID_CONFIGURATION);
  assert_non_null(strstr(openreg_last_error(), "there are 4 devices"));
  assert_int_equal(READ(&config, "OPENREG_PROFILE", "t4,"), OPENREG_INVALID_CONFIGURATION);
}

static void a_list_longer_than_any_machine_is_refused(void **state) {
  (void)state;
  openreg_config config;
  char list[3 * 65 + 1] = "";
  for (int i = 0; i < 65; i++)
    strcat(list, i == 0 ? "2M" : ",2M");
  assert_int_equal(READ(&config, "OPENREG_DEVICE_MEMORY", list), OPENREG_INVALID_CONFIGURATION);
}

static void the_process_environment_is_read_body(void) {
  const openreg_config *config, *again;
  REQUIRE_OK(openreg_config_get(&config));
  REQUIRE(config->device_count == 5);
  setenv("OPENREG_DEVICE_COUNT", "6", 1);
  REQUIRE_OK(openreg_config_get(&again));
  REQUIRE(again == config && config->device_count == 5);
  openreg_config fresh;
  REQUIRE_OK(openreg_config_read(NULL, MACHINE_BYTES, &fresh));
  REQUIRE(fresh.device_count == 6);
}

static void the_process_environment_is_read_once(void **state) {
  (void)state;
  child_expect_pass(the_process_environment_is_read_body, ENVIRONMENT("OPENREG_DEVICE_COUNT=5"));
}

static void an_invalid_environment_body(void) {
  const openreg_config *config = NULL;
  int count;
  for (int i = 0; i < 2; i++) {
    openreg_fail(OPENREG_SYSTEM, "something else");
    REQUIRE(openreg_config_get(&config) == OPENREG_INVALID_CONFIGURATION);
    REQUIRE(strcmp(openreg_last_error(), "openreg: OPENREG_DEVICE_COUNT=0: expected 1 to 64") == 0);
    REQUIRE(config == NULL);
    REQUIRE(openreg_device_count(&count) == OPENREG_INVALID_CONFIGURATION);
    REQUIRE(openreg_initialize() == OPENREG_INVALID_CONFIGURATION);
    REQUIRE(openreg_device_set_current(0) == OPENREG_INVALID_CONFIGURATION);
  }
  REQUIRE(!openreg_is_initialized());
}

static void an_invalid_environment_is_reported_each_time(void **state) {
  (void)state;
  child_expect_pass(an_invalid_environment_body, ENVIRONMENT("OPENREG_DEVICE_COUNT=0"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_environment_gives_the_defaults),
      cmocka_unit_test(an_empty_value_counts_as_not_set),
      cmocka_unit_test(device_counts_from_1_to_64_are_accepted),
      cmocka_unit_test(sizes_are_taken_in_every_spelling_and_rounded_down),
      cmocka_unit_test(a_list_has_one_value_per_device),
      cmocka_unit_test(capacity_is_the_smaller_of_the_profile_and_the_share),
      cmocka_unit_test(capacity_is_never_zero),
      cmocka_unit_test(this_machine_is_shared_when_no_other_is_given),
      cmocka_unit_test(groups_are_names_of_up_to_63_characters),
      cmocka_unit_test(switches_are_0_or_1),
      cmocka_unit_test(gpu_overhead_is_read),
      cmocka_unit_test(debugging_memory_makes_launches_blocking),
      cmocka_unit_test(a_named_group_has_that_name),
      cmocka_unit_test(an_unnamed_group_is_named_after_its_devices),
      cmocka_unit_test(groups_differ_by_number_capacity_and_profile_of_devices),
      cmocka_unit_test(process_settings_do_not_change_the_group),
      cmocka_unit_test(bad_values_are_refused_with_what_is_allowed),
      cmocka_unit_test(lists_of_missing_features_are_kept_as_written),
      cmocka_unit_test(a_list_that_does_not_fit_is_refused),
      cmocka_unit_test(an_unknown_profile_is_named_and_known_ones_are_listed),
      cmocka_unit_test(profiles_are_one_for_all_or_one_per_device),
      cmocka_unit_test(a_list_longer_than_any_machine_is_refused),
      cmocka_unit_test(the_process_environment_is_read_once),
      cmocka_unit_test(an_invalid_environment_is_reported_each_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
