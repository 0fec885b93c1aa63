/* Devices, properties, settings and peers. */
#include "support.h"

#define H100_AND_T4                                                                                \
  ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M", "OPENREG_PROFILE=h100,t4")

CHILD_TEST(devices_are_counted_and_chosen) {
  int count = 0, device = -1;
  REQUIRE_SUCCESS(cudaGetDeviceCount(&count));
  REQUIRE(count == 2);
  REQUIRE_SUCCESS(cudaSetDevice(1));
  REQUIRE_SUCCESS(cudaGetDevice(&device));
  REQUIRE(device == 1 && openreg_device_current() == 1);
  REQUIRE_ERROR(cudaErrorInvalidDevice, "device", cudaSetDevice(-1));
  REQUIRE_ERROR(cudaErrorInvalidValue, "NULL", cudaGetDevice(NULL));
}

CHILD_TEST_IN(without_devices_there_is_none, ENVIRONMENT("OPENREG_VISIBLE_DEVICES=")) {
  int count = 7, device;
  REQUIRE(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  REQUIRE(count == 0);
  REQUIRE(cudaGetDevice(&device) == cudaErrorNoDevice);
  REQUIRE(cudaSetDevice(0) == cudaErrorNoDevice);
}

CHILD_TEST_IN(a_wrong_configuration_is_named, ENVIRONMENT("OPENREG_DEVICE_COUNT=0")) {
  int count;
  REQUIRE_ERROR(cudaErrorInitializationError, "OPENREG_DEVICE_COUNT", cudaGetDeviceCount(&count));
}

CHILD_TEST_IN(properties_are_those_of_the_profile, H100_AND_T4) {
  struct cudaDeviceProp prop;
  REQUIRE_SUCCESS(cudaGetDeviceProperties(&prop, 0));
  REQUIRE(strcmp(prop.name, "NVIDIA H100 80GB HBM3") == 0);
  REQUIRE(prop.major == 9 && prop.minor == 0 && prop.multiProcessorCount == 132);
  REQUIRE(prop.totalGlobalMem == 64 << 20);
  REQUIRE(prop.sharedMemPerBlockOptin == 232448); /* as deviceQuery prints on an H100 */
  REQUIRE(prop.warpSize == 32 && prop.maxThreadsPerBlock == 1024);
  REQUIRE(prop.l2CacheSize == 50 << 20 && prop.memoryBusWidth == 5120);
  REQUIRE_SUCCESS(cudaGetDeviceProperties(&prop, 1));
  REQUIRE(prop.major == 7 && prop.minor == 5 && prop.maxThreadsPerMultiProcessor == 1024);
  REQUIRE(cudaGetDeviceProperties(&prop, 2) == cudaErrorInvalidDevice);
}

CHILD_TEST_IN(attributes_agree_with_properties, H100_AND_T4) {
  int value;
  REQUIRE_SUCCESS(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  REQUIRE(value == 132);
  REQUIRE_SUCCESS(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 1));
  REQUIRE(value == 7);
  REQUIRE_SUCCESS(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0));
  REQUIRE(value == 1980000);
  REQUIRE_SUCCESS(cudaDeviceGetAttribute(&value, cudaDevAttrManagedMemory, 0));
  REQUIRE(value == 1);
  REQUIRE_SUCCESS(cudaDeviceGetAttribute(&value, cudaDevAttrDirectManagedMemAccessFromHost, 0));
  REQUIRE(value == 0);
  REQUIRE(cudaDeviceGetAttribute(&value, (enum cudaDeviceAttr)0, 0) == cudaErrorInvalidValue);
  REQUIRE(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 5) == cudaErrorInvalidDevice);
}

CHILD_TEST(pci_addresses_lead_back_to_the_device) {
  char address[16];
  int device = -1;
  REQUIRE_SUCCESS(cudaDeviceGetPCIBusId(address, sizeof address, 1));
  REQUIRE(strcmp(address, "0000:02:00.0") == 0);
  REQUIRE_SUCCESS(cudaDeviceGetByPCIBusId(&device, address));
  REQUIRE(device == 1);
  REQUIRE(cudaDeviceGetByPCIBusId(&device, "0000:09:00.0") == cudaErrorInvalidValue);
  REQUIRE(cudaDeviceGetPCIBusId(address, 12, 1) == cudaErrorInvalidValue);
}

CHILD_TEST(settings_can_be_read_back) {
  size_t value;
  unsigned flags;
  REQUIRE_SUCCESS(cudaDeviceGetLimit(&value, cudaLimitStackSize));
  REQUIRE(value == 1024);
  REQUIRE_SUCCESS(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
  REQUIRE_SUCCESS(cudaDeviceGetLimit(&value, cudaLimitStackSize));
  REQUIRE(value == 4096);
  REQUIRE(cudaDeviceGetLimit(&value, (enum cudaLimit)99) == cudaErrorUnsupportedLimit);
  REQUIRE_SUCCESS(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
  REQUIRE_SUCCESS(cudaGetDeviceFlags(&flags));
  REQUIRE(flags == (cudaDeviceScheduleSpin | cudaDeviceMapHost));
  REQUIRE(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield) ==
          cudaErrorInvalidValue);
  REQUIRE_SUCCESS(cudaDeviceReset());
  REQUIRE_SUCCESS(cudaGetDeviceFlags(&flags));
  REQUIRE(flags == cudaDeviceMapHost);
}

CHILD_TEST(access_to_a_peer_is_enabled_once) {
  int can_access;
  REQUIRE_SUCCESS(cudaDeviceCanAccessPeer(&can_access, 0, 1));
  REQUIRE(can_access == 1);
  REQUIRE_SUCCESS(cudaDeviceCanAccessPeer(&can_access, 1, 1));
  REQUIRE(can_access == 0);
  REQUIRE(cudaDeviceCanAccessPeer(&can_access, 0, 2) == cudaErrorInvalidDevice);
  REQUIRE_SUCCESS(cudaDeviceEnablePeerAccess(1, 0));
  REQUIRE(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
  REQUIRE_SUCCESS(cudaDeviceDisablePeerAccess(1));
  REQUIRE(cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled);
  REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorInvalidDevice);
}

CHILD_TEST(versions_are_reported) {
  int version;
  REQUIRE_SUCCESS(cudaRuntimeGetVersion(&version));
  REQUIRE(version == CUDART_VERSION);
  REQUIRE_SUCCESS(cudaDriverGetVersion(&version));
  REQUIRE(version == 13000);
}

CHILD_TEST(there_is_no_driver_to_get_functions_of) {
  void *function = &function;
  enum cudaDriverEntryPointQueryResult result;
  REQUIRE_ERROR(cudaErrorNotSupported, "cuMemCreate",
                cudaGetDriverEntryPoint("cuMemCreate", &function, cudaEnableDefault, &result));
  REQUIRE(function == NULL && result == cudaDriverEntryPointSymbolNotFound);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_are_counted_and_chosen),
      cmocka_unit_test(without_devices_there_is_none),
      cmocka_unit_test(a_wrong_configuration_is_named),
      cmocka_unit_test(properties_are_those_of_the_profile),
      cmocka_unit_test(attributes_agree_with_properties),
      cmocka_unit_test(pci_addresses_lead_back_to_the_device),
      cmocka_unit_test(settings_can_be_read_back),
      cmocka_unit_test(access_to_a_peer_is_enabled_once),
      cmocka_unit_test(versions_are_reported),
      cmocka_unit_test(there_is_no_driver_to_get_functions_of),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
