/* Compares the table of GPUs with NVIDIA's publications. */
#include "child.h"
#include "device/process/config.h"

#include <stdlib.h>
#include <string.h>

static openreg_profile find(const char *text) {
  openreg_profile profile;
  memset(&profile, 0x55, sizeof profile);
  assert_true(openreg_profile_find(text, strlen(text), &profile));
  return profile;
}

static void the_table_matches_nvidias_publications(void **state) {
  (void)state;
  /* CUDA cores of the data sheet / cores per multiprocessor of that compute capability (programming
   * guide, "Arithmetic Instructions"): 64 for 7.x and 8.0; 128 for 8.6 and later. */
  static const struct {
    const char *key;
    int cuda_cores, cores_each, threads, capability;
  } published[] = {
      {"b200", 18944, 128, 2048, 100},    {"h200", 16896, 128, 2048, 90},
      {"h100", 16896, 128, 2048, 90},     {"h100-pcie", 14592, 128, 2048, 90},
      {"a100", 6912, 64, 2048, 80},       {"a100-80gb", 6912, 64, 2048, 80},
      {"v100", 5120, 64, 2048, 70},       {"v100-32gb", 5120, 64, 2048, 70},
      {"l40s", 18176, 128, 1536, 89},     {"l4", 7424, 128, 1536, 89},
      {"t4", 2560, 64, 1024, 75},         {"rtx4090", 16384, 128, 1536, 89},
      {"rtx3090", 10496, 128, 1536, 86},  {"a10g", 10240, 128, 1536, 86},
      {"rtx4090d", 14592, 128, 1536, 89}, {"h20", 9984, 128, 2048, 90},
      {"rtx3060", 3584, 128, 1536, 86},
  };
  size_t count = sizeof published / sizeof published[0];
  for (size_t i = 0; i < count; i++) {
    openreg_profile profile = find(published[i].key);
    assert_int_equal(profile.multiprocessor_count * published[i].cores_each,
                     published[i].cuda_cores);
    assert_int_equal(profile.max_threads_per_multiprocessor, published[i].threads);
    assert_int_equal(profile.major * 10 + profile.minor, published[i].capability);
  }
  assert_null(openreg_profile_at((int)count));
}

static void keys_match_in_any_case_but_only_in_full(void **state) {
  (void)state;
  openreg_profile profile;
  assert_string_equal(find("H100-PCIe").name, "NVIDIA H100 PCIe");
  assert_string_equal(find("h100").name, "NVIDIA H100 80GB HBM3");
  assert_false(openreg_profile_find("h10", 3, &profile));
  assert_false(openreg_profile_find("h1000", 5, &profile));
  assert_false(openreg_profile_find("", 0, &profile));
}

static void keys_are_in_lower_case_and_differ(void **state) {
  (void)state;
  for (int i = 0; openreg_profile_at(i) != NULL; i++) {
    const char *key = openreg_profile_at(i)->key;
    assert_int_equal(strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(key));
    for (int j = 0; j < i; j++)
      assert_string_not_equal(key, openreg_profile_at(j)->key);
  }
}

static void memory_is_a_little_less_than_advertised(void **state) {
  (void)state;
  static const struct {
    const char *key;
    double gib;
  } sold_with[] = {
      {"b200", 180},     {"h200", 141},   {"h100", 80},      {"h100-pcie", 80}, {"a100", 40},
      {"a100-80gb", 80}, {"v100", 16},    {"v100-32gb", 32}, {"l40s", 48},      {"l4", 24},
      {"t4", 16},        {"rtx4090", 24}, {"rtx3090", 24},   {"a10g", 24},      {"rtx4090d", 24},
      {"h20", 96},       {"rtx3060", 12},
  };
  for (size_t i = 0; i < sizeof sold_with / sizeof sold_with[0]; i++) {
    double share = (double)find(sold_with[i].key).memory_bytes / (sold_with[i].gib * (1 << 30));
    assert_true(share > 0.9 && share < 1.0);
  }
}

/* Known context sizes (docs/gpu-memory.md) are about 2 KiB for each thread of the GPU. */
static void contexts_are_as_large_as_the_gpu(void **state) {
  (void)state;
  for (int i = 0; openreg_profile_at(i) != NULL; i++) {
    const openreg_profile *profile = openreg_profile_at(i);
    double threads = profile->multiprocessor_count * profile->max_threads_per_multiprocessor;
    double share = (double)profile->context_bytes / (2048 * threads);
    assert_true(share > 0.95 && share < 1.05);
  }
}

static void every_profile_has_a_name(void **state) {
  (void)state;
  for (int i = 0; openreg_profile_at(i) != NULL; i++)
    assert_true(strlen(openreg_profile_at(i)->name) > 0);
}

static void indices_outside_the_table_give_null(void **state) {
  (void)state;
  assert_non_null(openreg_profile_at(0));
  assert_null(openreg_profile_at(-1));
  assert_null(openreg_profile_at(1000));
}

static void numbers_make_a_profile(void **state) {
  (void)state;
  openreg_profile profile = find("48x1536");
  assert_string_equal(profile.key, "48x1536");
  assert_string_equal(profile.name, "openreg 48x1536");
  assert_int_equal(profile.multiprocessor_count, 48);
  assert_int_equal(profile.max_threads_per_multiprocessor, 1536);
  assert_int_equal(profile.major, 8);
  assert_int_equal(profile.minor, 0);
  assert_int_equal(profile.memory_bytes, 0);
  assert_int_equal(profile.context_bytes, 144 << 20);
  assert_int_equal(find("1x256").multiprocessor_count, 1);
  assert_int_equal(find("1x256").context_bytes, 2 << 20);
  assert_int_equal(find("1024x4096").max_threads_per_multiprocessor, 4096);
}

static void numbers_out_of_range_or_malformed_make_none(void **state) {
  (void)state;
  static const char *const bad[] = {"0x1536", "1025x1536", "48x255",    "48x4097", "48x",
                                    "x1536",  "48",        "48x15a6",   "-1x1536", "48 x1536",
                                    "x",      "48x1536x1", "10000x1536"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    openreg_profile profile;
    assert_false(openreg_profile_find(bad[i], strlen(bad[i]), &profile));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_matches_nvidias_publications),
      cmocka_unit_test(keys_match_in_any_case_but_only_in_full),
      cmocka_unit_test(keys_are_in_lower_case_and_differ),
      cmocka_unit_test(memory_is_a_little_less_than_advertised),
      cmocka_unit_test(contexts_are_as_large_as_the_gpu),
      cmocka_unit_test(every_profile_has_a_name),
      cmocka_unit_test(indices_outside_the_table_give_null),
      cmocka_unit_test(numbers_make_a_profile),
      cmocka_unit_test(numbers_out_of_range_or_malformed_make_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
