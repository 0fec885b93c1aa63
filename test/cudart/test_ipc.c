/* Memory and events of other processes. */
#include "support.h"

#include "devices.h"
#include "helper.h"

#include <sys/mman.h>

/* What the processes send each other. */
static struct exchange {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
} * shared;

static void share(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
}

static void write_into_memory(void) {
  void *memory;
  await_cue();
  REQUIRE_SUCCESS(cudaIpcOpenMemHandle(&memory, shared->memory, cudaIpcMemLazyEnablePeerAccess));
  REQUIRE_SUCCESS(cudaMemset(memory, 6, 1000));
  report(1);
  await_cue();
  REQUIRE_SUCCESS(cudaIpcCloseMemHandle(memory));
  report(2);
  await_cue();
}

CHILD_TEST(memory_is_shared_until_all_have_closed_it) {
  char bytes[1000];
  share();
  helper helper = helper_start(write_into_memory);
  char *memory = device_memory(3 * MIB);
  REQUIRE_SUCCESS(cudaIpcGetMemHandle(&shared->memory, memory + 512));
  REQUIRE(helper_step(&helper) == 1);
  REQUIRE_SUCCESS(cudaMemcpy(bytes, memory, sizeof bytes, cudaMemcpyDeviceToHost));
  REQUIRE(bytes[0] == 6 && bytes[999] == 6);
  REQUIRE_SUCCESS(cudaFree(memory));
  REQUIRE(free_on(0) == 60 * MIB); /* the helper still has it */
  REQUIRE(helper_step(&helper) == 2);
  REQUIRE_SUCCESS(cudaFree(device_memory(1)));
  REQUIRE(free_on(0) == 64 * MIB);
  helper_dismiss(&helper);
}

static void wait_for_event(void) {
  cudaEvent_t event;
  await_cue();
  REQUIRE_SUCCESS(cudaIpcOpenEventHandle(&event, shared->event));
  report(cudaEventQuery(event));
  await_cue();
  REQUIRE_SUCCESS(cudaEventSynchronize(event));
  report(cudaEventQuery(event));
  REQUIRE_SUCCESS(cudaEventDestroy(event));
}

CHILD_TEST(events_are_shared) {
  static gate gate = GATE_CLOSED;
  cudaEvent_t event;
  share();
  helper helper = helper_start(wait_for_event);
  REQUIRE_SUCCESS(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaEventRecord(event, stream));
  REQUIRE_SUCCESS(cudaIpcGetEventHandle(&shared->event, event));
  REQUIRE(helper_step(&helper) == cudaErrorNotReady);
  gate_open(&gate);
  REQUIRE(helper_step(&helper) == cudaSuccess);
  helper_finish(&helper);
  REQUIRE_SUCCESS(cudaEventDestroy(event));
}

CHILD_TEST(bad_arguments_are_refused) {
  cudaIpcMemHandle_t handle;
  cudaIpcEventHandle_t event_handle;
  cudaEvent_t event;
  void *memory;
  memset(&handle, 1, sizeof handle);
  REQUIRE_ERROR(cudaErrorInvalidValue, "cudaMalloc", cudaIpcGetMemHandle(&handle, &handle));
  REQUIRE(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) ==
          cudaErrorInvalidResourceHandle);
  REQUIRE(cudaIpcOpenMemHandle(&memory, handle, 0) == cudaErrorInvalidValue);
  REQUIRE(cudaIpcCloseMemHandle(device_memory(1)) == cudaErrorInvalidValue);
  REQUIRE_SUCCESS(cudaEventCreate(&event));
  REQUIRE_ERROR(cudaErrorInvalidResourceHandle, "cudaEventInterprocess",
                cudaIpcGetEventHandle(&event_handle, event));
  REQUIRE_SUCCESS(cudaEventDestroy(event));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_shared_until_all_have_closed_it),
      cmocka_unit_test(events_are_shared),
      cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
