/* Initialization, versions, process names, and errors. */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- initialization -------------------------------------------------------------------------- */

CHILD_TEST(before_init_everything_is_uninitialized) {
  unsigned count;
  nvmlDevice_t device;
  char text[80];
  library_load();
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlDeviceGetCount_v2(&count));
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlDeviceGetHandleByIndex_v2(0, &device));
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlSystemGetDriverVersion(text, sizeof text));
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlShutdown());
}

CHILD_TEST(init_and_shutdown_are_counted) {
  unsigned count;
  library_load();
  REQUIRE_SUCCESS(library.nvmlInit());
  REQUIRE_SUCCESS(library.nvmlInit_v2());
  REQUIRE_SUCCESS(library.nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS));
  for (int i = 0; i < 3; i++) {
    REQUIRE_SUCCESS(library.nvmlDeviceGetCount_v2(&count));
    REQUIRE_SUCCESS(library.nvmlShutdown());
  }
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlDeviceGetCount_v2(&count));
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlShutdown());
  REQUIRE_SUCCESS(library.nvmlInit());
  REQUIRE_SUCCESS(library.nvmlDeviceGetCount_v2(&count));
}

CHILD_TEST(unknown_flags_are_refused) {
  library_load();
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlInitWithFlags(8));
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlShutdown());
}

static void bad_configuration_body(void) {
  library_load();
  REQUIRE_CODE(ERROR_DRIVER_NOT_LOADED, library.nvmlInit());
  REQUIRE_CODE(ERROR_DRIVER_NOT_LOADED, library.nvmlInit_v2());
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlShutdown());
  REQUIRE(strstr(library.nvmlErrorString(NVML_ERROR_DRIVER_NOT_LOADED), "OPENREG_") != NULL);
}

static void with_a_bad_configuration_no_driver_is_loaded(void **state) {
  (void)state;
  child_expect_pass(bad_configuration_body, ENVIRONMENT("OPENREG_DEVICE_COUNT=0"));
}

/* ---- contents -------------------------------------------------------------------------------- */

CHILD_TEST(versions_are_reported) {
  char text[80];
  int version = 0;
  library_start();
  REQUIRE_SUCCESS(library.nvmlSystemGetDriverVersion(text, sizeof text));
  REQUIRE(strtod(text, NULL) >= 580); /* the first driver branch with CUDA 13.0 */
  REQUIRE_SUCCESS(library.nvmlSystemGetCudaDriverVersion_v2(&version));
  REQUIRE(version == 13000);
  char nvml_version[80], expected[80];
  REQUIRE_SUCCESS(library.nvmlSystemGetNVMLVersion(nvml_version, sizeof nvml_version));
  snprintf(expected, sizeof expected, "13.%.70s", text);
  REQUIRE(strcmp(nvml_version, expected) == 0);
}

CHILD_TEST(text_that_does_not_fit_is_not_written) {
  char text[80] = "as it was";
  library_start();
  REQUIRE_CODE(ERROR_INSUFFICIENT_SIZE, library.nvmlSystemGetDriverVersion(text, 6));
  REQUIRE(strcmp(text, "as it was") == 0);
  REQUIRE_SUCCESS(library.nvmlSystemGetDriverVersion(text, 7));
  REQUIRE(strlen(text) == 6);
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlSystemGetDriverVersion(NULL, 80));
}

CHILD_TEST(processes_are_named_by_their_command) {
  char name[256], cut[5];
  library_start();
  REQUIRE_SUCCESS(library.nvmlSystemGetProcessName((unsigned)getpid(), name, sizeof name));
  REQUIRE(strstr(name, "test_nvml_library") != NULL);
  REQUIRE_SUCCESS(library.nvmlSystemGetProcessName((unsigned)getpid(), cut, sizeof cut));
  REQUIRE(strlen(cut) == 4 && strncmp(cut, name, 4) == 0);
  REQUIRE_CODE(ERROR_NOT_FOUND, library.nvmlSystemGetProcessName(0x7ffffff0, name, sizeof name));
  REQUIRE_CODE(ERROR_INVALID_ARGUMENT, library.nvmlSystemGetProcessName(1, NULL, 10));
}

CHILD_TEST(every_code_has_a_message) {
  library_load();
#define X(name, number, message)                                                                   \
  REQUIRE(strcmp(library.nvmlErrorString((nvmlReturn_t)number), message) == 0);
  NVML_CODE_LIST(X)
#undef X
  REQUIRE(strcmp(library.nvmlErrorString((nvmlReturn_t)777),
                 library.nvmlErrorString(NVML_ERROR_UNKNOWN)) == 0);
}

CHILD_TEST(missing_device_features_are_not_supported) {
  library_start();
  int nobody;
#define X(name)                                                                                    \
  {                                                                                                \
    nvmlReturn_t (*function)(nvmlDevice_t) = (nvmlReturn_t(*)(nvmlDevice_t))library_find(#name);   \
    REQUIRE(function != NULL);                                                                     \
    REQUIRE_CODE(ERROR_NOT_SUPPORTED, function(handle_of(1)));                                     \
    REQUIRE_CODE(ERROR_INVALID_ARGUMENT, function(NULL));                                          \
    REQUIRE_CODE(ERROR_INVALID_ARGUMENT, function((nvmlDevice_t)&nobody));                         \
  }
  NVML_UNSUPPORTED_LIST(X)
#undef X
}

/* The library's copy of the device layer must not replace that of the program, or the other way
 * around. */
CHILD_TEST(only_nvml_functions_are_exported) {
  library_load();
  REQUIRE(library_find("openreg_initialize") == NULL);
  REQUIRE(library_find("openreg_nvml_view") == NULL);
  REQUIRE(library_find("nvmlDeviceGetHandleByUUIDV") == NULL);
}

enum { THREADS = 8, ROUNDS = 200 };

static void *ask_again_and_again(void *unused) {
  for (int i = 0; i < ROUNDS; i++) {
    nvmlMemory_t memory;
    unsigned count;
    REQUIRE_SUCCESS(library.nvmlInit());
    REQUIRE_SUCCESS(library.nvmlDeviceGetCount_v2(&count));
    REQUIRE_SUCCESS(library.nvmlDeviceGetMemoryInfo(handle_of(count - 1), &memory));
    REQUIRE_SUCCESS(library.nvmlShutdown());
  }
  return unused;
}

CHILD_TEST(threads_query_concurrently) {
  pthread_t threads[THREADS];
  library_load();
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, ask_again_and_again, NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    REQUIRE(pthread_join(threads[i], NULL) == 0);
  REQUIRE_CODE(ERROR_UNINITIALIZED, library.nvmlShutdown());
}

static void ask_in_a_child(void) {
  unsigned count;
  REQUIRE_SUCCESS(library.nvmlDeviceGetCount_v2(&count));
  REQUIRE(count == 2);
}

CHILD_TEST(a_forked_child_can_still_query) {
  library_start();
  REQUIRE_OK(openreg_initialize());
  ask_in_a_child();
  child_fork_and_require(ask_in_a_child);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(before_init_everything_is_uninitialized),
      cmocka_unit_test(init_and_shutdown_are_counted),
      cmocka_unit_test(unknown_flags_are_refused),
      cmocka_unit_test(with_a_bad_configuration_no_driver_is_loaded),
      cmocka_unit_test(versions_are_reported),
      cmocka_unit_test(text_that_does_not_fit_is_not_written),
      cmocka_unit_test(processes_are_named_by_their_command),
      cmocka_unit_test(every_code_has_a_message),
      cmocka_unit_test(missing_device_features_are_not_supported),
      cmocka_unit_test(only_nvml_functions_are_exported),
      cmocka_unit_test(threads_query_concurrently),
      cmocka_unit_test(a_forked_child_can_still_query),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
