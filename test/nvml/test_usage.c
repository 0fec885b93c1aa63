/* Memory, processes and utilization, with processes that start, work and end. */
#include "gate.h"
#include "library.h"

#include <string.h>

enum { MIB = 1 << 20 };

static void take_10_of_device_0(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 10 * MIB));
  report(0);
  await_cue();
}

static void take_20_of_both(void) {
  REQUIRE_OK(openreg_ledger_reserve(0, 20 * MIB));
  REQUIRE_OK(openreg_ledger_reserve(1, 20 * MIB));
  report(0);
  await_cue();
}

static void work_on_device_1(void) {
  static gate gate = GATE_CLOSED;
  gate_close_stream(&gate, 1, 0);
  report(0);
  await_cue();
}

/* ---- memory ---------------------------------------------------------------------------------- */

CHILD_TEST(memory_is_all_free_without_processes) {
  nvmlMemory_t memory;
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetMemoryInfo(handle_of(0), &memory));
  REQUIRE(memory.total == 64 * MIB && memory.free == 64 * MIB && memory.used == 0);
}

CHILD_TEST(memory_usage_is_that_of_all_processes) {
  nvmlMemory_t memory;
  nvmlMemory_v2_t newer = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2), .reserved = 1};
  library_start();
  helper helpers[2] = {helper_start(take_10_of_device_0), helper_start(take_20_of_both)};
  helper_receive(&helpers[0]);
  helper_receive(&helpers[1]);
  REQUIRE_SUCCESS(library.nvmlDeviceGetMemoryInfo(handle_of(0), &memory));
  REQUIRE(memory.total == 64 * MIB && memory.used == 30 * MIB && memory.free == 34 * MIB);
  REQUIRE_SUCCESS(library.nvmlDeviceGetMemoryInfo_v2(handle_of(1), &newer));
  REQUIRE(newer.total == 64 * MIB && newer.used == 20 * MIB && newer.free == 44 * MIB);
  REQUIRE(newer.reserved == 0);
  helper_kill(&helpers[1]);
  REQUIRE_SUCCESS(library.nvmlDeviceGetMemoryInfo(handle_of(0), &memory));
  REQUIRE(memory.used == 10 * MIB);
  helper_kill(&helpers[0]);
}

CHILD_TEST(memory_of_another_version_is_refused) {
  nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 3)};
  library_start();
  REQUIRE_CODE(ERROR_ARGUMENT_VERSION_MISMATCH,
               library.nvmlDeviceGetMemoryInfo_v2(handle_of(0), &memory));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetMemoryInfo(handle_of(0), NULL));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetMemoryInfo_v2(handle_of(0), NULL));
}

/* ---- processes ------------------------------------------------------------------------------- */

CHILD_TEST(processes_are_listed_on_the_devices_that_they_use) {
  nvmlProcessInfo_t processes[4];
  library_start();
  helper first = helper_start(take_10_of_device_0);
  helper_receive(&first);
  helper second = helper_start(take_20_of_both);
  helper_receive(&second);
  unsigned count = 4;
  REQUIRE_SUCCESS(library.nvmlDeviceGetComputeRunningProcesses_v3(handle_of(0), &count, processes));
  REQUIRE(count == 2);
  REQUIRE(processes[0].pid == (unsigned)first.pid && processes[1].pid == (unsigned)second.pid);
  REQUIRE(processes[0].usedGpuMemory == 10 * MIB && processes[1].usedGpuMemory == 20 * MIB);
  REQUIRE(processes[0].gpuInstanceId == ~0u && processes[0].computeInstanceId == ~0u);
  count = 4;
  REQUIRE_SUCCESS(library.nvmlDeviceGetComputeRunningProcesses_v2(handle_of(1), &count, processes));
  REQUIRE(count == 1 && processes[0].pid == (unsigned)second.pid);
  helper_kill(&second);
  count = 4;
  REQUIRE_SUCCESS(library.nvmlDeviceGetComputeRunningProcesses_v3(handle_of(0), &count, processes));
  REQUIRE(count == 1 && processes[0].pid == (unsigned)first.pid);
  helper_kill(&first);
}

CHILD_TEST(processes_are_listed_in_the_first_version) {
  nvmlProcessInfo_v1_t processes[2] = {{0}};
  unsigned count = 2;
  library_start();
  REQUIRE_OK(openreg_ledger_reserve(0, 3 * MIB));
  REQUIRE_SUCCESS(library.nvmlDeviceGetComputeRunningProcesses(handle_of(0), &count, processes));
  REQUIRE(count == 1 && processes[0].usedGpuMemory == 3 * MIB && processes[1].pid == 0);
}

CHILD_TEST(a_list_that_is_too_short_reports_the_required_size) {
  nvmlProcessInfo_t processes[1];
  unsigned count = 0;
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetComputeRunningProcesses_v3(handle_of(0), &count, NULL));
  REQUIRE(count == 0);
  helper other = helper_start(take_10_of_device_0);
  helper_receive(&other);
  REQUIRE_OK(openreg_ledger_reserve(0, MIB));
  REQUIRE_CODE(ERROR_INSUFFICIENT_SIZE,
               library.nvmlDeviceGetComputeRunningProcesses_v3(handle_of(0), &count, NULL));
  REQUIRE(count == 2);
  count = 1;
  REQUIRE_CODE(ERROR_INSUFFICIENT_SIZE,
               library.nvmlDeviceGetComputeRunningProcesses_v3(handle_of(0), &count, processes));
  REQUIRE(count == 2);
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT,
               library.nvmlDeviceGetComputeRunningProcesses_v3(handle_of(0), NULL, processes));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT,
               library.nvmlDeviceGetComputeRunningProcesses_v3(handle_of(0), &count, NULL));
  helper_kill(&other);
}

CHILD_TEST(no_process_uses_graphics) {
  nvmlProcessInfo_t processes[1];
  unsigned count = 1;
  library_start();
  REQUIRE_OK(openreg_ledger_reserve(0, MIB));
  REQUIRE_SUCCESS(
      library.nvmlDeviceGetGraphicsRunningProcesses_v3(handle_of(0), &count, processes));
  REQUIRE(count == 0);
}

/* ---- utilization ----------------------------------------------------------------------------- */

CHILD_TEST(a_device_that_works_is_busy) {
  nvmlUtilization_t rates;
  library_start();
  helper worker = helper_start(work_on_device_1);
  helper_receive(&worker);
  do /* other tests list all groups: one may have sampled before the work began */
    REQUIRE_SUCCESS(library.nvmlDeviceGetUtilizationRates(handle_of(1), &rates));
  while (rates.gpu != 100 || rates.memory != 100);
  REQUIRE_SUCCESS(library.nvmlDeviceGetUtilizationRates(handle_of(0), &rates));
  REQUIRE(rates.gpu == 0 && rates.memory == 0);
  helper_kill(&worker);
}

CHILD_TEST(without_processes_nothing_is_busy) {
  nvmlUtilization_t rates;
  library_start();
  REQUIRE_SUCCESS(library.nvmlDeviceGetUtilizationRates(handle_of(0), &rates));
  REQUIRE(rates.gpu == 0 && rates.memory == 0);
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlDeviceGetUtilizationRates(handle_of(0), NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_all_free_without_processes),
      cmocka_unit_test(memory_usage_is_that_of_all_processes),
      cmocka_unit_test(memory_of_another_version_is_refused),
      cmocka_unit_test(processes_are_listed_on_the_devices_that_they_use),
      cmocka_unit_test(processes_are_listed_in_the_first_version),
      cmocka_unit_test(a_list_that_is_too_short_reports_the_required_size),
      cmocka_unit_test(no_process_uses_graphics),
      cmocka_unit_test(a_device_that_works_is_busy),
      cmocka_unit_test(without_processes_nothing_is_busy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
