/* Devices: finding them, their properties, and their placement. */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TWO_DEVICES                                                                                \
  ENVIRONMENT("OPENREG_DEVICE_MEMORY=64M,32M", "OPENREG_PROFILE=t4,rtx4090",                       \
              "HWLOC_SYNTHETIC=numa:2 core:2 pu:1", "CUDA_VISIBLE_DEVICES=1")

#define TEST_OF_TWO_DEVICES(name) CHILD_TEST_IN(name, TWO_DEVICES)

static void hold(void) {
  REQUIRE_OK(openreg_initialize());
  report(0);
  await_cue();
}

static void be_of_a_group_with_three_devices(void) {
  REQUIRE(setenv("OPENREG_DEVICE_COUNT", "3", 1) == 0);
  REQUIRE(setenv("OPENREG_DEVICE_MEMORY", "16M", 1) == 0);
  REQUIRE(setenv("OPENREG_PROFILE", "v100", 1) == 0);
  hold();
}

/* ---- finding devices ------------------------------------------------------------------------- */

TEST_OF_TWO_DEVICES(all_devices_are_counted_and_nothing_is_created) {
  unsigned count;
  nvmlDevice_t device;
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetCount_v2(&count));
  REQUIRE(count == 2); /* CUDA_VISIBLE_DEVICES has no effect */
  REQUIRE_SUCCESS(library.nvmlDeviceGetHandleByIndex(1, &device));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetHandleByIndex_v2(2, &device));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetHandleByIndex_v2(0, NULL));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetCount(NULL));
  REQUIRE(access(child_control_file(child_group()), F_OK) != 0);
}

TEST_OF_TWO_DEVICES(the_devices_are_those_that_the_group_has) {
  unsigned count;
  char name[64];
  library_start();
  nvmlDevice_t last = handle_of(1);
  helper other = helper_start(be_of_a_group_with_three_devices);
  helper_receive(&other);
  REQUIRE_SUCCESS(library.nvmlDeviceGetCount_v2(&count));
  REQUIRE(count == 3);
  REQUIRE_SUCCESS(library.nvmlDeviceGetName(last, name, sizeof name));
  REQUIRE(strcmp(name, "Tesla V100-SXM2-16GB") == 0);
  nvmlDevice_t third = handle_of(2);
  helper_kill(&other);
  REQUIRE_CODE(ERROR_GPU_IS_LOST, library.nvmlDeviceGetName(third, name, sizeof name));
}

TEST_OF_TWO_DEVICES(devices_are_found_by_uuid) {
  char uuids[2][80];
  nvmlDevice_t device;
  library_start();
  for (unsigned i = 0; i < 2; i++) {
    REQUIRE_SUCCESS(library.nvmlDeviceGetUUID(handle_of(i), uuids[i], sizeof uuids[i]));
    REQUIRE(strncmp(uuids[i], "GPU-", 4) == 0 && strlen(uuids[i]) == 40);
    REQUIRE_SUCCESS(library.nvmlDeviceGetHandleByUUID(uuids[i], &device));
    REQUIRE(device == handle_of(i));
  }
  REQUIRE(strcmp(uuids[0], uuids[1]) != 0);
  REQUIRE_CODE(ERROR_NOT_FOUND, library.nvmlDeviceGetHandleByUUID("GPU-", &device));
  REQUIRE_CODE(ERROR_NOT_FOUND, library.nvmlDeviceGetHandleByUUID(uuids[0] + 4, &device));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetHandleByUUID(NULL, &device));
  REQUIRE_CODE(ERROR_NOT_FOUND, library.nvmlDeviceGetHandleBySerial("1", &device));
}

TEST_OF_TWO_DEVICES(a_uuid_is_that_of_the_device_s_properties) {
  openreg_device_properties properties;
  char expected[OPENREG_UUID_TEXT_BYTES], uuid[80];
  library_start();
  REQUIRE_OK(openreg_device_get_properties(1, &properties));
  openreg_device_write_uuid(properties.uuid, expected);
  REQUIRE_SUCCESS(library.nvmlDeviceGetUUID(handle_of(1), uuid, sizeof uuid));
  REQUIRE(strcmp(uuid + 4, expected) == 0);
}

TEST_OF_TWO_DEVICES(devices_are_found_by_their_place_on_the_bus) {
  nvmlDevice_t device;
  library_start();
  for (unsigned i = 0; i < 2; i++) {
    nvmlPciInfo_t info;
    REQUIRE_SUCCESS(library.nvmlDeviceGetPciInfo_v3(handle_of(i), &info));
    REQUIRE(info.domain == 0 && info.bus == i + 1 && info.device == 0);
    REQUIRE((info.pciDeviceId & 0xffff) == 0x10de);
    REQUIRE_SUCCESS(library.nvmlDeviceGetHandleByPciBusId_v2(info.busId, &device));
    REQUIRE(device == handle_of(i));
    REQUIRE_SUCCESS(library.nvmlDeviceGetHandleByPciBusId(info.busIdLegacy, &device));
    REQUIRE(device == handle_of(i));
  }
  REQUIRE_SUCCESS(library.nvmlDeviceGetHandleByPciBusId_v2("02:00", &device));
  REQUIRE(device == handle_of(1));
  static const char *const nowhere[] = {
      "00000000:03:00.0", "00000000:00:00.0", "00000001:01:00.0", "00000000:01:01.0", "", "GPU"};
  for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++)
    REQUIRE_CODE(ERROR_NOT_FOUND, library.nvmlDeviceGetHandleByPciBusId_v2(nowhere[i], &device));
}

TEST_OF_TWO_DEVICES(the_bus_id_is_the_same_in_all_versions) {
  nvmlPciInfo_t info;
  nvmlPciInfo_v2_t old;
  nvmlPciInfoExt_v1_t extended = {.version = NVML_STRUCT_VERSION(nvmlPciInfoExt_v1_t, 1)};
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetPciInfo_v3(handle_of(1), &info));
  REQUIRE_SUCCESS(library.nvmlDeviceGetPciInfo_v2(handle_of(1), &old));
  REQUIRE_SUCCESS(library.nvmlDeviceGetPciInfoExt(handle_of(1), &extended));
  REQUIRE(strcmp(info.busId, "00000000:02:00.0") == 0);
  REQUIRE(strcmp(extended.busId, info.busId) == 0 && extended.bus == 2 && extended.baseClass == 3);
  REQUIRE(strcmp(old.busId, "0000:02:00.0") == 0 && strcmp(info.busIdLegacy, old.busId) == 0);
  extended.version = 0;
  REQUIRE_CODE(ERROR_ARGUMENT_VERSION_MISMATCH,
               library.nvmlDeviceGetPciInfoExt(handle_of(1), &extended));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetPciInfo_v3(handle_of(1), NULL));
}

/* ---- properties ------------------------------------------------------------------------------ */

TEST_OF_TWO_DEVICES(a_device_is_the_gpu_of_its_profile) {
  static const struct {
    const char *name;
    int brand, major, minor;
    unsigned architecture, cores;
  } expected[2] = {
      /* NVIDIA's data sheets: 2560 and 16384 CUDA cores */
      {"Tesla T4", NVML_BRAND_TESLA, 7, 5, NVML_DEVICE_ARCH_TURING, 2560},
      {"NVIDIA GeForce RTX 4090", NVML_BRAND_GEFORCE_RTX, 8, 9, NVML_DEVICE_ARCH_ADA, 16384}};
  library_start();
  for (unsigned i = 0; i < 2; i++) {
    char name[64];
    int brand, major, minor;
    unsigned architecture, cores, index, number;
    nvmlDevice_t device = handle_of(i);
    REQUIRE_SUCCESS(library.nvmlDeviceGetName(device, name, sizeof name));
    REQUIRE_SUCCESS(library.nvmlDeviceGetBrand(device, &brand));
    REQUIRE_SUCCESS(library.nvmlDeviceGetCudaComputeCapability(device, &major, &minor));
    REQUIRE_SUCCESS(library.nvmlDeviceGetArchitecture(device, &architecture));
    REQUIRE_SUCCESS(library.nvmlDeviceGetNumGpuCores(device, &cores));
    REQUIRE_SUCCESS(library.nvmlDeviceGetIndex(device, &index));
    REQUIRE_SUCCESS(library.nvmlDeviceGetMinorNumber(device, &number));
    REQUIRE(strcmp(name, expected[i].name) == 0 && brand == expected[i].brand);
    REQUIRE(major == expected[i].major && minor == expected[i].minor);
    REQUIRE(architecture == expected[i].architecture && cores == expected[i].cores);
    REQUIRE(index == i && number == i);
  }
}

TEST_OF_TWO_DEVICES(names_that_do_not_fit_are_rejected) {
  char name[64];
  library_start();
  REQUIRE_CODE(ERROR_INSUFFICIENT_SIZE, library.nvmlDeviceGetName(handle_of(0), name, 8));
  REQUIRE_SUCCESS(library.nvmlDeviceGetName(handle_of(0), name, 9));
  REQUIRE_CODE(ERROR_INSUFFICIENT_SIZE, library.nvmlDeviceGetUUID(handle_of(0), name, 40));
  REQUIRE_SUCCESS(library.nvmlDeviceGetUUID(handle_of(0), name, 41));
}

TEST_OF_TWO_DEVICES(modes_are_those_of_a_device_without_display) {
  int mode = -1;
  unsigned count = 1;
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetPersistenceMode(handle_of(0), &mode));
  REQUIRE(mode == NVML_FEATURE_DISABLED);
  REQUIRE_SUCCESS(library.nvmlDeviceGetComputeMode(handle_of(0), &mode));
  REQUIRE(mode == NVML_COMPUTEMODE_DEFAULT);
  REQUIRE_SUCCESS(library.nvmlDeviceGetDisplayActive(handle_of(0), &mode));
  REQUIRE(mode == NVML_FEATURE_DISABLED);
  REQUIRE_SUCCESS(library.nvmlDeviceGetMaxMigDeviceCount(handle_of(0), &count));
  REQUIRE(count == 0);
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetComputeMode(handle_of(0), NULL));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetComputeMode(NULL, &mode));
}

/* ---- placement ------------------------------------------------------------------------------- */

TEST_OF_TWO_DEVICES(placement_matches_the_ledger) {
  unsigned long cpus[2] = {~0ul, ~0ul};
  unsigned node;
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetCpuAffinity(handle_of(0), 2, cpus));
  REQUIRE(cpus[0] == 0x3 && cpus[1] == 0);
  REQUIRE_SUCCESS(library.nvmlDeviceGetCpuAffinity(handle_of(1), 1, cpus));
  REQUIRE(cpus[0] == 0xc);
  REQUIRE_SUCCESS(library.nvmlDeviceGetNumaNodeId(handle_of(1), &node));
  REQUIRE(node == 1);
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetCpuAffinity(handle_of(0), 0, cpus));
}

TEST_OF_TWO_DEVICES(pairs_reach_each_other_through_the_host) {
  int level = -1, status = -1, same = -1;
  library_start();
  nvmlDevice_t first = handle_of(0), second = handle_of(1);
  REQUIRE_SUCCESS(library.nvmlDeviceGetTopologyCommonAncestor(first, second, &level));
  REQUIRE(level == NVML_TOPOLOGY_SYSTEM);
  REQUIRE_SUCCESS(library.nvmlDeviceGetTopologyCommonAncestor(first, first, &level));
  REQUIRE(level == NVML_TOPOLOGY_INTERNAL);
  REQUIRE_SUCCESS(
      library.nvmlDeviceGetP2PStatus(first, second, NVML_P2P_CAPS_INDEX_WRITE, &status));
  REQUIRE(status == NVML_P2P_STATUS_OK);
  REQUIRE_SUCCESS(
      library.nvmlDeviceGetP2PStatus(first, second, NVML_P2P_CAPS_INDEX_NVLINK, &status));
  REQUIRE(status == NVML_P2P_STATUS_NOT_SUPPORTED);
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetP2PStatus(first, first, 0, &status));
  REQUIRE_SUCCESS(library.nvmlDeviceOnSameBoard(first, second, &same));
  REQUIRE(same == 0);
}

TEST_OF_TWO_DEVICES(each_field_says_for_itself_that_it_is_not_there) {
  nvmlFieldValue_t values[2] = {{.fieldId = 91}, {.fieldId = 138}};
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetFieldValues(handle_of(0), 2, values));
  for (int i = 0; i < 2; i++)
    REQUIRE(values[i].nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetFieldValues(handle_of(0), 0, values));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_devices_are_counted_and_nothing_is_created),
      cmocka_unit_test(the_devices_are_those_that_the_group_has),
      cmocka_unit_test(devices_are_found_by_uuid),
      cmocka_unit_test(a_uuid_is_that_of_the_device_s_properties),
      cmocka_unit_test(devices_are_found_by_their_place_on_the_bus),
      cmocka_unit_test(the_bus_id_is_the_same_in_all_versions),
      cmocka_unit_test(a_device_is_the_gpu_of_its_profile),
      cmocka_unit_test(names_that_do_not_fit_are_rejected),
      cmocka_unit_test(modes_are_those_of_a_device_without_display),
      cmocka_unit_test(placement_matches_the_ledger),
      cmocka_unit_test(pairs_reach_each_other_through_the_host),
      cmocka_unit_test(each_field_says_for_itself_that_it_is_not_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
