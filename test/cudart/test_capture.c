/* Capturing streams, and graphs. */
#include "support.h"

static cudaStream_t begin(void) {
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  REQUIRE_SUCCESS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  return stream;
}

static cudaGraph_t end(cudaStream_t stream) {
  cudaGraph_t graph;
  REQUIRE_SUCCESS(cudaStreamEndCapture(stream, &graph));
  return graph;
}

static enum cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  enum cudaStreamCaptureStatus status;
  REQUIRE_SUCCESS(cudaStreamIsCapturing(stream, &status));
  return status;
}

static void add_one(void *number) {
  ++*(int *)number;
}

CHILD_TEST(captured_work_runs_at_each_launch) {
  int count = 0;
  char byte = 0;
  char *device = device_memory(1);
  cudaGraphExec_t exec;
  cudaStream_t stream = begin();
  REQUIRE(status_of(stream) == cudaStreamCaptureStatusActive);
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, add_one, &count));
  REQUIRE_SUCCESS(cudaMemsetAsync(device, 7, 1, stream));
  REQUIRE_SUCCESS(cudaMemcpyAsync(&byte, device, 1, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph = end(stream);
  REQUIRE(status_of(stream) == cudaStreamCaptureStatusNone);
  REQUIRE(count == 0 && byte == 0);
  REQUIRE_SUCCESS(cudaGraphInstantiate(&exec, graph, 0));
  REQUIRE_SUCCESS(cudaGraphDestroy(graph));
  REQUIRE_SUCCESS(cudaGraphUpload(exec, stream));
  REQUIRE_SUCCESS(cudaGraphLaunch(exec, stream));
  REQUIRE_SUCCESS(cudaGraphLaunch(exec, NULL));
  REQUIRE_SUCCESS(cudaGraphExecDestroy(exec));
  REQUIRE_SUCCESS(cudaDeviceSynchronize());
  REQUIRE(count == 2 && byte == 7);
}

CHILD_TEST(nodes_depend_on_those_before_them) {
  int count = 0;
  cudaGraphNode_t nodes[3], dependency;
  size_t number = 3;
  cudaStream_t stream = begin();
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, add_one, &count));
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, add_one, &count));
  cudaGraph_t graph = end(stream);
  REQUIRE_SUCCESS(cudaGraphGetNodes(graph, nodes, &number));
  REQUIRE(number == 2 && nodes[2] == NULL);
  number = 1;
#if CUDART_VERSION >= 13000
  REQUIRE_SUCCESS(cudaGraphNodeGetDependencies(nodes[1], &dependency, NULL, &number));
#else
  REQUIRE_SUCCESS(cudaGraphNodeGetDependencies(nodes[1], &dependency, &number));
#endif
  REQUIRE(number == 1 && dependency == nodes[0]);
  REQUIRE_SUCCESS(cudaGraphDestroy(graph));
}

CHILD_TEST(what_cannot_be_captured_invalidates_the_capture) {
  void *memory;
  cudaGraph_t graph = (cudaGraph_t)&memory;
  cudaStream_t stream = begin();
  REQUIRE(cudaMalloc(&memory, 1) == cudaErrorStreamCaptureUnsupported);
  REQUIRE(status_of(stream) == cudaStreamCaptureStatusInvalidated);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  REQUIRE(graph == NULL);
  REQUIRE(status_of(stream) == cudaStreamCaptureStatusNone);
}

CHILD_TEST(waiting_for_a_capturing_stream_is_refused) {
  cudaGraph_t graph;
  cudaStream_t stream = begin();
  REQUIRE(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
}

CHILD_TEST(a_relaxed_thread_may_allocate) {
  void *memory;
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaStream_t stream = begin();
  REQUIRE_SUCCESS(cudaThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(mode == cudaStreamCaptureModeGlobal);
  REQUIRE_SUCCESS(cudaMalloc(&memory, 1));
  REQUIRE_SUCCESS(cudaThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(mode == cudaStreamCaptureModeRelaxed);
  REQUIRE_SUCCESS(cudaGraphDestroy(end(stream)));
}

CHILD_TEST(the_default_stream_must_not_wait_for_a_capture) {
  cudaStream_t stream = make_stream(cudaStreamDefault);
  cudaGraph_t graph;
  int count = 0;
  REQUIRE_SUCCESS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  REQUIRE_ERROR(cudaErrorStreamCaptureImplicit, "captures",
                cudaLaunchHostFunc(NULL, add_one, &count));
  REQUIRE_SUCCESS(cudaStreamEndCapture(stream, &graph));
  REQUIRE_SUCCESS(cudaGraphDestroy(graph));
}

CHILD_TEST(the_info_of_a_capture_has_its_number) {
  unsigned long long first = 0, second = 0;
  enum cudaStreamCaptureStatus status;
  cudaStream_t stream = begin(), other = make_stream(cudaStreamNonBlocking);
  REQUIRE_SUCCESS(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
#if CUDART_VERSION >= 13000
  cudaGraph_t graph;
  REQUIRE_SUCCESS(cudaStreamGetCaptureInfo(stream, &status, &first, NULL, NULL, NULL, NULL));
  REQUIRE_SUCCESS(cudaStreamGetCaptureInfo(other, &status, &second, NULL, NULL, NULL, NULL));
  REQUIRE_ERROR(cudaErrorNotSupported, "cudaStreamGetCaptureInfo",
                cudaStreamGetCaptureInfo(other, &status, &second, &graph, NULL, NULL, NULL));
#else
  REQUIRE_SUCCESS(cudaStreamGetCaptureInfo(stream, &status, &first, NULL, NULL, NULL));
  REQUIRE_SUCCESS(cudaStreamGetCaptureInfo(other, &status, &second, NULL, NULL, NULL));
#endif
  REQUIRE(status == cudaStreamCaptureStatusActive && first != second && first != 0);
  REQUIRE_SUCCESS(cudaGraphDestroy(end(stream)));
  REQUIRE_SUCCESS(cudaGraphDestroy(end(other)));
}

CHILD_TEST(bad_arguments_are_refused) {
  cudaGraphExec_t exec;
  cudaGraph_t graph;
  REQUIRE(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal) ==
          cudaErrorStreamCaptureUnsupported);
  REQUIRE(cudaStreamEndCapture(make_stream(0), &graph) == cudaErrorStreamCaptureUnmatched);
  REQUIRE(cudaGraphInstantiate(&exec, NULL, 0) == cudaErrorInvalidValue);
  REQUIRE(cudaGraphLaunch(NULL, NULL) == cudaErrorInvalidValue);
  REQUIRE(cudaGraphDestroy(NULL) == cudaErrorInvalidValue);
  graph = end(begin());
  REQUIRE_ERROR(cudaErrorInvalidValue, "0x4",
                cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch));
  REQUIRE_SUCCESS(cudaGraphDestroy(graph));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(captured_work_runs_at_each_launch),
      cmocka_unit_test(nodes_depend_on_those_before_them),
      cmocka_unit_test(what_cannot_be_captured_invalidates_the_capture),
      cmocka_unit_test(waiting_for_a_capturing_stream_is_refused),
      cmocka_unit_test(a_relaxed_thread_may_allocate),
      cmocka_unit_test(the_default_stream_must_not_wait_for_a_capture),
      cmocka_unit_test(the_info_of_a_capture_has_its_number),
      cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
