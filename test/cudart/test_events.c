/* Events. */
#include "support.h"

static cudaEvent_t make_event(unsigned flags) {
  cudaEvent_t event;
  REQUIRE_SUCCESS(cudaEventCreateWithFlags(&event, flags));
  return event;
}

CHILD_TEST(an_event_is_reached_after_the_work_before_it) {
  static gate gate = GATE_CLOSED;
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  cudaEvent_t event = make_event(cudaEventDisableTiming);
  REQUIRE_SUCCESS(cudaEventQuery(event));
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaEventRecord(event, stream));
  REQUIRE(cudaEventQuery(event) == cudaErrorNotReady);
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaEventSynchronize(event));
  REQUIRE_SUCCESS(cudaEventQuery(event));
  REQUIRE_SUCCESS(cudaEventDestroy(event));
}

CHILD_TEST(a_stream_waits_for_an_event) {
  static gate gate = GATE_CLOSED;
  cudaStream_t first = make_stream(cudaStreamNonBlocking);
  cudaStream_t second = make_stream(cudaStreamNonBlocking);
  cudaEvent_t event = make_event(cudaEventDisableTiming);
  hold(first, &gate);
  REQUIRE_SUCCESS(cudaEventRecord(event, first));
  REQUIRE_SUCCESS(cudaStreamWaitEvent(second, event, 0));
  REQUIRE_SUCCESS(cudaEventDestroy(event));
  REQUIRE(cudaStreamQuery(second) == cudaErrorNotReady);
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaStreamSynchronize(second));
  REQUIRE_SUCCESS(cudaStreamQuery(first));
}

CHILD_TEST(elapsed_time_needs_two_recorded_events_with_timing) {
  float ms = -1;
  cudaEvent_t start = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
  REQUIRE_ERROR(cudaErrorInvalidResourceHandle, "", cudaEventElapsedTime(&ms, start, end));
  REQUIRE_SUCCESS(cudaEventRecord(start, NULL));
  REQUIRE_SUCCESS(cudaEventRecord(end, NULL));
  REQUIRE_SUCCESS(cudaEventSynchronize(end));
  REQUIRE_SUCCESS(cudaEventElapsedTime(&ms, start, end));
  REQUIRE(ms >= 0);
  cudaEvent_t without = make_event(cudaEventDisableTiming);
  REQUIRE_SUCCESS(cudaEventRecord(without, NULL));
  REQUIRE(cudaEventElapsedTime(&ms, start, without) == cudaErrorInvalidResourceHandle);
  REQUIRE_SUCCESS(cudaEventDestroy(start));
  REQUIRE_SUCCESS(cudaEventDestroy(end));
  REQUIRE_SUCCESS(cudaEventDestroy(without));
}

CHILD_TEST(elapsed_time_of_unfinished_work_is_not_ready) {
  static gate gate = GATE_CLOSED;
  float ms;
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  cudaEvent_t start = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
  REQUIRE_SUCCESS(cudaEventRecord(start, stream));
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaEventRecordWithFlags(end, stream, cudaEventRecordDefault));
  REQUIRE(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady);
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaEventDestroy(start));
  REQUIRE_SUCCESS(cudaEventDestroy(end));
}

CHILD_TEST(bad_arguments_are_refused) {
  cudaEvent_t event = make_event(cudaEventDefault), none;
  REQUIRE(cudaEventCreateWithFlags(&none, 64) == cudaErrorInvalidValue);
  REQUIRE_ERROR(cudaErrorInvalidValue, "cudaEventDisableTiming",
                cudaEventCreateWithFlags(&none, cudaEventInterprocess));
  REQUIRE(cudaEventRecord(NULL, NULL) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaEventQuery(NULL) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaEventDestroy(NULL) == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaStreamWaitEvent(NULL, NULL, 0) == cudaErrorInvalidResourceHandle);
  REQUIRE_SUCCESS(cudaSetDevice(1));
  REQUIRE_ERROR(cudaErrorInvalidResourceHandle, "device", cudaEventRecord(event, NULL));
  REQUIRE_ERROR(cudaErrorInvalidResourceHandle, "devices",
                cudaEventRecord(event, make_stream(cudaStreamNonBlocking)));
  REQUIRE_SUCCESS(cudaEventDestroy(event));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_event_is_reached_after_the_work_before_it),
      cmocka_unit_test(a_stream_waits_for_an_event),
      cmocka_unit_test(elapsed_time_needs_two_recorded_events_with_timing),
      cmocka_unit_test(elapsed_time_of_unfinished_work_is_not_ready),
      cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
