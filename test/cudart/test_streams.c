/* Streams, their handles, and the order between them. */
#include "support.h"

#include <pthread.h>

static void append(void *text) {
  strcat(((char **)text)[0], ((char **)text)[1]);
}

CHILD_TEST(a_handle_names_device_and_stream) {
  int device, number;
  unsigned long long id, other;
  REQUIRE_SUCCESS(cudaSetDevice(1));
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  REQUIRE_OK(openreg_stream_parse_handle((uintptr_t)stream, &device, &number));
  REQUIRE(device == 1 && number > 0);
  REQUIRE((cudaStream_t)openreg_stream_make_handle(device, number) == stream);
  REQUIRE_SUCCESS(cudaSetDevice(0));
  REQUIRE_SUCCESS(cudaStreamGetDevice(stream, &device));
  REQUIRE(device == 1);
  REQUIRE_SUCCESS(cudaStreamGetDevice(NULL, &device));
  REQUIRE(device == 0);
  REQUIRE_SUCCESS(cudaStreamGetId(stream, &id));
  REQUIRE_SUCCESS(cudaStreamGetId(NULL, &other));
  REQUIRE(id != other);
}

CHILD_TEST(streams_are_different_until_the_pool_is_used_up) {
  cudaStream_t streams[OPENREG_STREAMS_PER_POOL + 1];
  for (int i = 0; i <= OPENREG_STREAMS_PER_POOL; i++) {
    streams[i] = make_stream(cudaStreamNonBlocking);
    int same = 0;
    for (int j = 0; j < i; j++)
      same += streams[j] == streams[i];
    REQUIRE(same == (i == OPENREG_STREAMS_PER_POOL));
  }
  for (int i = 0; i <= OPENREG_STREAMS_PER_POOL; i++)
    REQUIRE_SUCCESS(cudaStreamDestroy(streams[i]));
}

CHILD_TEST(priorities_and_flags_can_be_read) {
  int least, greatest, priority;
  unsigned flags;
  cudaStream_t stream;
  REQUIRE_SUCCESS(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  REQUIRE(least == 0 && greatest == -3);
  REQUIRE_SUCCESS(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -5));
  REQUIRE_SUCCESS(cudaStreamGetPriority(stream, &priority));
  REQUIRE(priority == -3);
  REQUIRE_SUCCESS(cudaStreamGetFlags(stream, &flags));
  REQUIRE(flags == cudaStreamNonBlocking);
  REQUIRE_SUCCESS(cudaStreamGetFlags(make_stream(cudaStreamDefault), &flags));
  REQUIRE(flags == cudaStreamDefault);
  REQUIRE_SUCCESS(cudaStreamGetFlags(NULL, &flags));
  REQUIRE(flags == cudaStreamDefault);
}

CHILD_TEST(bad_arguments_are_refused) {
  int priority;
  cudaStream_t stream;
  REQUIRE(cudaStreamCreateWithFlags(&stream, 2) == cudaErrorInvalidValue);
  REQUIRE(cudaStreamCreate(NULL) == cudaErrorInvalidValue);
  REQUIRE_ERROR(cudaErrorInvalidResourceHandle, "0xabc",
                cudaStreamSynchronize((cudaStream_t)0xabc));
  REQUIRE(cudaStreamGetPriority((cudaStream_t)0x7fff000000001234, &priority) ==
          cudaErrorInvalidResourceHandle);
  REQUIRE(cudaStreamDestroy(NULL) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaLaunchHostFunc(NULL, NULL, NULL) == cudaErrorInvalidValue);
}

CHILD_TEST(host_functions_run_in_order) {
  static gate gate = GATE_CLOSED;
  char text[8] = "";
  char *first[] = {text, "a"}, *second[] = {text, "b"};
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, append, first));
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, append, second));
  REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
  REQUIRE(cudaGetLastError() == cudaErrorNotReady);
  REQUIRE(text[0] == '\0');
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(strcmp(text, "ab") == 0);
  REQUIRE_SUCCESS(cudaStreamQuery(stream));
}

static void note_callback(cudaStream_t stream, cudaError_t status, void *data) {
  *(cudaStream_t *)data = status == cudaSuccess ? stream : NULL;
}

CHILD_TEST(callbacks_get_stream_and_status) {
  cudaStream_t seen = NULL, stream = make_stream(cudaStreamNonBlocking);
  REQUIRE_SUCCESS(cudaStreamAddCallback(stream, note_callback, &seen, 0));
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(seen == stream);
}

static void call_runtime(void *result) {
  void *memory;
  *(cudaError_t *)result = cudaDeviceSynchronize();
  (void)cudaMalloc(&memory, 1);
}

CHILD_TEST(a_host_function_must_not_wait) {
  cudaError_t result = cudaSuccess;
  static gate gate = GATE_CLOSED;
  cudaStream_t other = make_stream(cudaStreamNonBlocking);
  hold(other, &gate);
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, call_runtime, &result));
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(result == cudaErrorNotPermitted);
  gate_open(&gate);
}

/* ---- the default stream ---------------------------------------------------------------------- */

static void the_default_stream_waits_for(unsigned flags, bool expected) {
  static gate gate = GATE_CLOSED;
  char text[8] = "";
  char *word[] = {text, "a"};
  cudaStream_t stream = make_stream(flags);
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaLaunchHostFunc(NULL, append, word));
  if (!expected)
    REQUIRE_SUCCESS(cudaStreamSynchronize(NULL));
  else
    REQUIRE(cudaStreamQuery(NULL) == cudaErrorNotReady);
  REQUIRE((text[0] == '\0') == expected);
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaDeviceSynchronize());
  REQUIRE(strcmp(text, "a") == 0);
}

CHILD_TEST(the_default_stream_waits_for_blocking_streams) {
  the_default_stream_waits_for(cudaStreamDefault, true);
}

CHILD_TEST(the_default_stream_ignores_other_streams) {
  the_default_stream_waits_for(cudaStreamNonBlocking, false);
}

CHILD_TEST(blocking_streams_wait_for_the_default_stream) {
  static gate gate = GATE_CLOSED;
  char text[8] = "";
  char *word[] = {text, "a"};
  cudaStream_t stream = make_stream(cudaStreamDefault);
  hold(cudaStreamLegacy, &gate);
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, append, word));
  REQUIRE(text[0] == '\0');
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(strcmp(text, "a") == 0);
}

CHILD_TEST(a_destroyed_stream_no_longer_blocks) {
  cudaStream_t stream = make_stream(cudaStreamDefault);
  unsigned flags;
  REQUIRE_SUCCESS(cudaStreamDestroy(stream));
  REQUIRE_SUCCESS(cudaStreamGetFlags(stream, &flags));
  REQUIRE(flags == cudaStreamNonBlocking);
}

static void *find_per_thread(void *id) {
  REQUIRE_SUCCESS(cudaStreamGetId(cudaStreamPerThread, id));
  return NULL;
}

CHILD_TEST(each_thread_has_its_own_default_stream) {
  unsigned long long mine, again, other;
  pthread_t thread;
  find_per_thread(&mine);
  find_per_thread(&again);
  REQUIRE(mine == again);
  REQUIRE(pthread_create(&thread, NULL, find_per_thread, &other) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
  REQUIRE(other != mine);
}

CHILD_TEST_IN(in_blocking_mode_work_is_done_at_once,
              ENVIRONMENT("OPENREG_DEVICE_COUNT=1", "OPENREG_DEVICE_MEMORY=64M",
                          "OPENREG_LAUNCH_BLOCKING=1")) {
  char text[8] = "";
  char *word[] = {text, "a"};
  REQUIRE_SUCCESS(cudaLaunchHostFunc(make_stream(0), append, word));
  REQUIRE(strcmp(text, "a") == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_handle_names_device_and_stream),
      cmocka_unit_test(streams_are_different_until_the_pool_is_used_up),
      cmocka_unit_test(priorities_and_flags_can_be_read),
      cmocka_unit_test(bad_arguments_are_refused),
      cmocka_unit_test(host_functions_run_in_order),
      cmocka_unit_test(callbacks_get_stream_and_status),
      cmocka_unit_test(a_host_function_must_not_wait),
      cmocka_unit_test(the_default_stream_waits_for_blocking_streams),
      cmocka_unit_test(the_default_stream_ignores_other_streams),
      cmocka_unit_test(blocking_streams_wait_for_the_default_stream),
      cmocka_unit_test(a_destroyed_stream_no_longer_blocks),
      cmocka_unit_test(each_thread_has_its_own_default_stream),
      cmocka_unit_test(in_blocking_mode_work_is_done_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
