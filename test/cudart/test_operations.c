/* What the runtime reports to the observer of operations (device/operations.h). */
#include "device/operations.h"
#include "support.h"

enum { MOST = 32, BYTES = 4096 };

static openreg_operation reported[MOST];
static _Atomic size_t count;

static void observe(const openreg_operation *operation) {
  size_t index = count++;
  REQUIRE(index < MOST);
  reported[index] = *operation;
}

static void begin(void) {
  count = 0;
  openreg_operation_set_observer(observe);
}

static void end(void) {
  openreg_operation_set_observer(NULL);
}

/* The reports since begin() were these, in this order. */
#define REQUIRE_KINDS(...)                                                                         \
  do {                                                                                             \
    const openreg_operation_kind expected[] = {__VA_ARGS__};                                       \
    end();                                                                                         \
    REQUIRE(count == sizeof expected / sizeof *expected);                                          \
    for (size_t i = 0; i < count; i++)                                                             \
      REQUIRE(reported[i].kind == expected[i]);                                                    \
  } while (0)

CHILD_TEST(events_and_waits_of_the_host) {
  cudaStream_t first = make_stream(cudaStreamNonBlocking);
  cudaStream_t second = make_stream(cudaStreamNonBlocking);
  cudaEvent_t event;
  float ms;
  REQUIRE_SUCCESS(cudaEventCreate(&event));
  begin();
  REQUIRE_SUCCESS(cudaEventRecord(event, first));
  REQUIRE_SUCCESS(cudaStreamWaitEvent(second, event, 0));
  REQUIRE_SUCCESS(cudaEventSynchronize(event));
  REQUIRE_SUCCESS(cudaEventQuery(event));
  REQUIRE_SUCCESS(cudaEventElapsedTime(&ms, event, event));
  REQUIRE_SUCCESS(cudaStreamSynchronize(first));
  REQUIRE_SUCCESS(cudaStreamQuery(second));
  REQUIRE_SUCCESS(cudaDeviceSynchronize());
  REQUIRE_SUCCESS(cudaEventDestroy(event));
  REQUIRE_KINDS(OPENREG_OPERATION_RECORD, OPENREG_OPERATION_WAIT, OPENREG_OPERATION_SYNC_EVENT,
                OPENREG_OPERATION_SYNC_EVENT, OPENREG_OPERATION_SYNC_EVENT,
                OPENREG_OPERATION_SYNC_EVENT, OPENREG_OPERATION_SYNC_STREAM,
                OPENREG_OPERATION_SYNC_STREAM, OPENREG_OPERATION_SYNC_DEVICE,
                OPENREG_OPERATION_FORGET);
  REQUIRE(reported[0].event == reported[1].event && reported[0].event == reported[9].event);
  REQUIRE(reported[0].stream == reported[6].stream);
  REQUIRE(reported[1].stream == reported[7].stream);
  REQUIRE(reported[0].stream != reported[1].stream);
}

CHILD_TEST(unfinished_work_is_not_a_wait_of_the_host) {
  static gate gate = GATE_CLOSED;
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  cudaEvent_t event;
  REQUIRE_SUCCESS(cudaEventCreate(&event));
  hold(stream, &gate);
  begin();
  REQUIRE_SUCCESS(cudaEventRecord(event, stream));
  REQUIRE(cudaEventQuery(event) == cudaErrorNotReady);
  REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
  REQUIRE_KINDS(OPENREG_OPERATION_RECORD);
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaEventDestroy(event));
}

CHILD_TEST(blocking_streams_are_ordered_even_if_they_are_idle) {
  cudaStream_t stream = make_stream(cudaStreamDefault);
  char *memory = device_memory(BYTES);
  begin();
  REQUIRE_SUCCESS(cudaMemsetAsync(memory, 0, BYTES, stream));
  REQUIRE_SUCCESS(cudaMemsetAsync(memory, 0, BYTES, NULL));
  REQUIRE_SUCCESS(cudaStreamQuery(NULL));
  REQUIRE_KINDS(OPENREG_OPERATION_ORDER, OPENREG_OPERATION_FILL, OPENREG_OPERATION_ORDER,
                OPENREG_OPERATION_FILL, OPENREG_OPERATION_ORDER, OPENREG_OPERATION_SYNC_STREAM);
  REQUIRE(reported[0].awaited == OPENREG_STREAM_DEFAULT && reported[0].stream != 0);
  REQUIRE(reported[2].awaited == reported[0].stream && reported[2].stream == 0);
}

CHILD_TEST(copies_say_which_bytes) {
  char *memory = device_memory(BYTES), host[100] = {0};
  begin();
  REQUIRE_SUCCESS(cudaMemcpy2D(memory, 64, host, 10, 8, 10, cudaMemcpyHostToDevice));
  REQUIRE_KINDS(OPENREG_OPERATION_COPY, OPENREG_OPERATION_BEGIN_ACCESS,
                OPENREG_OPERATION_END_ACCESS, OPENREG_OPERATION_SYNC_STREAM);
  const openreg_operation *copy = &reported[0];
  REQUIRE(copy->to.address == memory && copy->to.bytes == 8 && copy->to.rows == 10);
  REQUIRE(copy->to.pitch == 64 && copy->from.pitch == 10 && copy->from.address == host);
  REQUIRE(reported[1].from.address == host && reported[1].to.address == NULL);
  REQUIRE(strcmp(copy->name, "cudaMemcpy") == 0);
}

static void do_nothing(void *data) {
  (void)data;
}

CHILD_TEST(host_functions) {
  begin();
  REQUIRE_SUCCESS(cudaLaunchHostFunc(NULL, do_nothing, NULL));
  REQUIRE_SUCCESS(cudaStreamSynchronize(NULL));
  end();
  int begun = -1, ended = -1; /* the function may run during the call that waits */
  for (int i = 0; i < (int)count; i++) {
    begun = reported[i].kind == OPENREG_OPERATION_BEGIN_CALL ? i : begun;
    ended = reported[i].kind == OPENREG_OPERATION_END_CALL ? i : ended;
  }
  REQUIRE(count == 4 && begun >= 0 && begun < ended);
}

CHILD_TEST(memory) {
  void *device, *host, *pooled;
  begin();
  REQUIRE_SUCCESS(cudaMalloc(&device, BYTES));
  REQUIRE_SUCCESS(cudaFree(device));
  REQUIRE_SUCCESS(cudaMallocAsync(&pooled, BYTES, NULL));
  REQUIRE_SUCCESS(cudaFreeAsync(pooled, NULL));
  REQUIRE_SUCCESS(cudaHostAlloc(&host, BYTES, cudaHostAllocDefault));
  size_t before = count;
  REQUIRE_SUCCESS(cudaFreeHost(host));
  REQUIRE(count > before && reported[before].kind == OPENREG_OPERATION_SYNC_DEVICE);
  openreg_operation last = reported[count - 1];
  count = before;
  REQUIRE_KINDS(OPENREG_OPERATION_ALLOCATED, OPENREG_OPERATION_SYNC_DEVICE, OPENREG_OPERATION_FREE,
                OPENREG_OPERATION_ALLOCATED, OPENREG_OPERATION_FREE, OPENREG_OPERATION_PINNED);
  REQUIRE(reported[0].to.address == device && reported[2].to.address == device);
  REQUIRE(reported[0].to.bytes == BYTES);
  REQUIRE(last.kind == OPENREG_OPERATION_UNPIN && last.to.address == host);
}

CHILD_TEST(a_capture_orders_nothing) {
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  cudaEvent_t event;
  cudaGraph_t graph;
  char *memory = device_memory(BYTES);
  REQUIRE_SUCCESS(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  begin();
  REQUIRE_SUCCESS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  REQUIRE_SUCCESS(cudaEventRecord(event, stream));
  REQUIRE_SUCCESS(cudaStreamWaitEvent(stream, event, 0));
  REQUIRE_SUCCESS(cudaMemsetAsync(memory, 0, BYTES, stream));
  REQUIRE_SUCCESS(cudaStreamEndCapture(stream, &graph));
  REQUIRE_KINDS(OPENREG_OPERATION_FILL);
  REQUIRE_SUCCESS(cudaGraphDestroy(graph));
  REQUIRE_SUCCESS(cudaEventDestroy(event));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_and_waits_of_the_host),
      cmocka_unit_test(unfinished_work_is_not_a_wait_of_the_host),
      cmocka_unit_test(blocking_streams_are_ordered_even_if_they_are_idle),
      cmocka_unit_test(copies_say_which_bytes),
      cmocka_unit_test(host_functions),
      cmocka_unit_test(memory),
      cmocka_unit_test(a_capture_orders_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
