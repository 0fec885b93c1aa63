/* Last errors, sentences, names and texts. */
#include "support.h"

#include <pthread.h>

CHILD_TEST(an_error_stays_until_it_is_read) {
  int device = 7;
  REQUIRE(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaSetDevice(2) == cudaErrorInvalidDevice);
  REQUIRE_SUCCESS(cudaGetDevice(&device));
  REQUIRE(device == 0);
  REQUIRE(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  REQUIRE(cudaGetLastError() == cudaErrorInvalidDevice);
  REQUIRE(cudaPeekAtLastError() == cudaSuccess);
}

CHILD_TEST(the_sentence_outlives_the_error_and_belongs_to_it) {
  REQUIRE(cudaSetDevice(2) == cudaErrorInvalidDevice);
  REQUIRE(cudaGetLastError() == cudaErrorInvalidDevice);
  REQUIRE(strstr(openreg_cudart_sentence(cudaErrorInvalidDevice), "ordinal 2") != NULL);
  REQUIRE(strcmp(openreg_cudart_sentence(cudaErrorInvalidValue), "") == 0);
  REQUIRE(cudaMalloc(NULL, 1) == cudaErrorInvalidValue);
  REQUIRE(strcmp(openreg_cudart_sentence(cudaErrorInvalidDevice), "") == 0);
  REQUIRE(strcmp(openreg_cudart_sentence(cudaErrorInvalidValue), "cudaMalloc: devPtr is NULL") ==
          0);
  REQUIRE(strcmp(openreg_last_error(), "cudaMalloc: devPtr is NULL") == 0);
}

static void *read_last_error(void *error) {
  *(cudaError_t *)error = cudaGetLastError();
  return NULL;
}

CHILD_TEST(each_thread_has_its_own_error) {
  pthread_t thread;
  cudaError_t other = cudaErrorUnknown;
  REQUIRE(cudaSetDevice(2) == cudaErrorInvalidDevice);
  REQUIRE(pthread_create(&thread, NULL, read_last_error, &other) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
  REQUIRE(other == cudaSuccess);
  REQUIRE(cudaGetLastError() == cudaErrorInvalidDevice);
}

CHILD_TEST(errors_have_cudas_names_and_texts) {
  REQUIRE(strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady") == 0);
  REQUIRE(strcmp(cudaGetErrorString(cudaSuccess), "no error") == 0);
  REQUIRE(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
  REQUIRE(strcmp(cudaGetErrorString(cudaErrorAssert), "device-side assert triggered") == 0);
  REQUIRE(strcmp(cudaGetErrorString((cudaError_t)12345), "unrecognized error code") == 0);
  REQUIRE(strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code") == 0);
}

static void require_refused_in_fork(void) {
  int count;
  void *memory;
  REQUIRE(cudaGetDeviceCount(&count) == cudaErrorInitializationError);
  REQUIRE_ERROR(cudaErrorInitializationError, "fork", cudaMalloc(&memory, 1));
}

CHILD_TEST(a_forked_child_gets_an_initialization_error) {
  REQUIRE_SUCCESS(cudaFree(NULL));
  child_fork_and_require(require_refused_in_fork);
}

CHILD_TEST(a_failure_of_work_stays_until_the_device_is_reset) {
  REQUIRE_SUCCESS(cudaFree(NULL));
  REQUIRE_OK(openreg_stream_launch(0, 1, fail_with_message, "the work's own message"));
  REQUIRE_ERROR(cudaErrorLaunchFailure, "the work's own message", cudaDeviceSynchronize());
  void *memory;
  REQUIRE(cudaGetLastError() == cudaErrorLaunchFailure);
  REQUIRE(cudaGetLastError() == cudaErrorLaunchFailure);
  REQUIRE_ERROR(cudaErrorLaunchFailure, "the work's own message", cudaMalloc(&memory, 1));
  REQUIRE_ERROR(cudaErrorLaunchFailure, "the work's own message", cudaStreamQuery(0));
  REQUIRE_SUCCESS(cudaDeviceReset());
  REQUIRE(cudaGetLastError() == cudaSuccess);
  REQUIRE_SUCCESS(cudaDeviceSynchronize());
}

CHILD_TEST(a_failure_of_work_belongs_to_one_device) {
  REQUIRE_SUCCESS(cudaSetDevice(1));
  REQUIRE_SUCCESS(cudaFree(NULL));
  REQUIRE_OK(openreg_stream_launch(1, 1, fail_with_message, "the work's own message"));
  REQUIRE_ERROR(cudaErrorLaunchFailure, "the work's own message", cudaDeviceSynchronize());
  REQUIRE_SUCCESS(cudaSetDevice(0));
  REQUIRE(cudaGetLastError() == cudaSuccess);
  REQUIRE_SUCCESS(cudaDeviceSynchronize());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_error_stays_until_it_is_read),
      cmocka_unit_test(the_sentence_outlives_the_error_and_belongs_to_it),
      cmocka_unit_test(each_thread_has_its_own_error),
      cmocka_unit_test(errors_have_cudas_names_and_texts),
      cmocka_unit_test(a_forked_child_gets_an_initialization_error),
      cmocka_unit_test(a_failure_of_work_stays_until_the_device_is_reset),
      cmocka_unit_test(a_failure_of_work_belongs_to_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
