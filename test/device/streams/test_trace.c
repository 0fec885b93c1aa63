/* The tracer: what is reported, on which thread, and that each note is returned. */
#include "device/streams/stream.h"
#include "device/trace.h"
#include "gate.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

struct traced {
  openreg_trace_work work;
  bool by_waiting_thread; /* reported on the thread that runs the test */
};

static struct traced all[MOST];
static _Atomic int report_count, notes;
static _Thread_local bool is_test;

static void *note(openreg_trace_kind kind, int device, int stream) {
  (void)kind, (void)device, (void)stream;
  REQUIRE(is_test);
  atomic_fetch_add(&notes, 1);
  return malloc(1);
}

static void report(const openreg_trace_work *work) {
  if (work->note != NULL)
    atomic_fetch_sub(&notes, 1);
  free(work->note);
  int place = atomic_fetch_add(&report_count, 1);
  REQUIRE(place < MOST);
  all[place] = (struct traced){*work, is_test};
}

static const openreg_tracer tracer = {note, report};

static void begin(void) {
  is_test = true;
  REQUIRE_OK(openreg_initialize());
  openreg_trace_install(&tracer);
  openreg_trace_begin();
}

static openreg_status nothing(void *data) {
  (void)data;
  return OPENREG_OK;
}

CHILD_TEST(nothing_is_reported_before_tracing_begins_or_after_it_ends) {
  begin();
  openreg_trace_end();
  REQUIRE_OK(openreg_stream_launch(0, 0, nothing, NULL));
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(report_count == 0 && notes == 0);
}

CHILD_TEST(inline_work_is_reported_when_it_ends) {
  begin();
  REQUIRE_OK(openreg_stream_try_begin_inline(1, 2));
  REQUIRE_OK(openreg_stream_try_begin_inline(1, 2)); /* part of the same work */
  openreg_stream_end_inline(1, 2);
  REQUIRE(report_count == 0);
  openreg_stream_end_inline(1, 2);
  const openreg_trace_work *work = &all[0].work;
  REQUIRE(report_count == 1 && notes == 0 && all[0].by_waiting_thread);
  REQUIRE(work->kind == OPENREG_TRACE_INLINE && work->device == 1 && work->stream == 2);
  REQUIRE(work->queue_depth == 1 && work->begin_ns <= work->end_ns);
}

CHILD_TEST(discarded_inline_work_is_not_reported) {
  begin();
  REQUIRE_OK(openreg_stream_try_begin_inline(1, 2));
  openreg_trace_skip_inline(1, 2);
  openreg_stream_end_inline(1, 2);
  REQUIRE(report_count == 0 && notes == 0);
}

CHILD_TEST(queued_work_is_reported_by_its_worker_before_it_counts_as_done) {
  begin();
  for (int i = 0; i < 3; i++)
    REQUIRE_OK(openreg_stream_launch(0, 1, nothing, NULL));
  REQUIRE_OK(openreg_stream_synchronize(0, 1));
  REQUIRE(report_count == 3 && notes == 0);
  for (int i = 0; i < 3; i++) {
    REQUIRE(!all[i].by_waiting_thread && all[i].work.kind == OPENREG_TRACE_QUEUED);
    REQUIRE(i == 0 || all[i - 1].work.end_ns <= all[i].work.begin_ns);
  }
}

CHILD_TEST(queue_depth_is_counted_when_work_begins) {
  gate gate = GATE_CLOSED;
  begin();
  gate_close_stream(&gate, 0, 1);
  for (int i = 0; i < 2; i++)
    REQUIRE_OK(openreg_stream_launch(0, 1, nothing, NULL));
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 1));
  REQUIRE(all[1].work.queue_depth == 2 && all[2].work.queue_depth == 1);
}

CHILD_TEST(a_wait_reports_the_awaited_stream) {
  gate gate = GATE_CLOSED;
  openreg_event *event;
  begin();
  REQUIRE_OK(openreg_event_create(1, false, &event));
  gate_close_stream(&gate, 1, 3);
  REQUIRE_OK(openreg_event_record(event, 3));
  REQUIRE_OK(openreg_stream_wait_event(0, 5, event));
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 5));
  int waits = 0;
  for (int i = 0; i < report_count; i++) {
    const openreg_trace_work *work = &all[i].work;
    if (work->kind != OPENREG_TRACE_WAIT)
      continue;
    waits++;
    REQUIRE(work->device == 0 && work->stream == 5);
    REQUIRE(work->awaited_device == 1 && work->awaited_stream == 3);
  }
  REQUIRE(waits == 1 && notes == 0);
  openreg_event_destroy(event);
}

CHILD_TEST(work_submitted_before_tracing_has_no_note) {
  gate gate = GATE_CLOSED;
  is_test = true;
  REQUIRE_OK(openreg_initialize());
  gate_close_stream(&gate, 0, 0);
  REQUIRE_OK(openreg_stream_launch(0, 0, nothing, NULL));
  begin();
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(report_count == 1 &&
          all[0].work.note == NULL); /* the gate is not reported, because it had begun */
}

CHILD_TEST(a_note_is_returned_after_tracing_ended) {
  gate gate = GATE_CLOSED;
  begin();
  gate_close_stream(&gate, 0, 0);
  REQUIRE_OK(openreg_stream_launch(0, 0, nothing, NULL));
  openreg_trace_end();
  REQUIRE(notes == 2);
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_synchronize(0, 0));
  REQUIRE(notes == 0);
}

CHILD_TEST(work_that_is_waited_for_is_inline) {
  openreg_event *event;
  setenv("OPENREG_LAUNCH_BLOCKING", "1", 1);
  begin();
  REQUIRE_OK(openreg_stream_launch(0, 0, nothing, NULL));
  REQUIRE(report_count == 1 && all[0].work.kind == OPENREG_TRACE_INLINE &&
          all[0].by_waiting_thread);
  REQUIRE_OK(openreg_event_create(0, true, &event));
  REQUIRE_OK(openreg_event_record(event, 0)); /* recording is not work */
  REQUIRE(report_count == 1 && notes == 0);
  openreg_event_destroy(event);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_reported_before_tracing_begins_or_after_it_ends),
      cmocka_unit_test(inline_work_is_reported_when_it_ends),
      cmocka_unit_test(discarded_inline_work_is_not_reported),
      cmocka_unit_test(queued_work_is_reported_by_its_worker_before_it_counts_as_done),
      cmocka_unit_test(queue_depth_is_counted_when_work_begins),
      cmocka_unit_test(a_wait_reports_the_awaited_stream),
      cmocka_unit_test(work_submitted_before_tracing_has_no_note),
      cmocka_unit_test(a_note_is_returned_after_tracing_ended),
      cmocka_unit_test(work_that_is_waited_for_is_inline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
