/* Capturing streams: what becomes a node, in which order, and what is rejected. */
#include "child.h"
#include "device/capture.h"
#include "gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MEMPOOL = 7, MOST = 64 };

/* ---- work that records its number ------------------------------------------------------------ */

static char written[MOST + 1];
static _Atomic int destroyed;

struct letter {
  char letter;
  openreg_status status;
};

static openreg_status write_letter(void *data) {
  const struct letter *letter = data;
  written[strlen(written)] = letter->letter;
  return letter->status == OPENREG_OK ? OPENREG_OK
                                      : openreg_fail(letter->status, "the letter fails");
}

static void destroy_letter(void *data) {
  free(data);
  atomic_fetch_add(&destroyed, 1);
}

static openreg_status add_failing(int stream, char letter, openreg_status status) {
  struct letter *data = malloc(sizeof *data);
  *data = (struct letter){letter, status};
  openreg_graph_work work = {write_letter, destroy_letter, data, "letter"};
  return openreg_capture_add(0, stream, &work);
}

static openreg_status add(int stream, char letter) {
  return add_failing(stream, letter, OPENREG_OK);
}

static openreg_status write_nothing(void *data) {
  (void)data;
  return OPENREG_OK;
}

static void begin(int stream) {
  REQUIRE_OK(openreg_capture_begin(0, stream, OPENREG_CAPTURE_GLOBAL, MEMPOOL));
}

static openreg_graph *end(int stream) {
  openreg_graph *graph = NULL;
  REQUIRE_OK(openreg_capture_end(0, stream, &graph));
  REQUIRE(graph != NULL);
  return graph;
}

static void require_end_fails(int stream, openreg_status status) {
  openreg_graph *graph = NULL;
  REQUIRE(openreg_capture_end(0, stream, &graph) == status);
  REQUIRE(graph == NULL);
  REQUIRE(!openreg_stream_is_capturing(0, stream));
  REQUIRE_OK(openreg_stream_synchronize(0, stream));
}

static openreg_event *make_event(void) {
  openreg_event *event = NULL;
  REQUIRE_OK(openreg_event_create(0, false, &event));
  return event;
}

/* `later` waits for the work that `earlier` was given. */
static void join(int later, int earlier) {
  openreg_event *event = make_event();
  REQUIRE_OK(openreg_event_record(event, earlier));
  REQUIRE_OK(openreg_stream_wait_event(0, later, event));
  openreg_event_destroy(event);
}

static void require_run_writes(const openreg_graph *graph, const char *letters) {
  memset(written, 0, sizeof written);
  REQUIRE_OK(openreg_graph_run(graph));
  REQUIRE(strcmp(written, letters) == 0);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

CHILD_TEST(captured_work_is_not_done_before_its_graph_runs_and_then_each_time) {
  begin(1);
  REQUIRE_OK(add(1, 'a'));
  REQUIRE_OK(add(1, 'b'));
  openreg_graph *graph = end(1);
  REQUIRE(written[0] == 0);
  require_run_writes(graph, "ab");
  require_run_writes(graph, "ab");
  REQUIRE(atomic_load(&destroyed) == 0);
  openreg_graph_destroy(graph);
  REQUIRE(atomic_load(&destroyed) == 2);
}

CHILD_TEST(a_graph_stops_with_the_failure_of_a_node) {
  begin(1);
  REQUIRE_OK(add(1, 'a'));
  REQUIRE_OK(add_failing(1, 'b', OPENREG_SYSTEM));
  REQUIRE_OK(add(1, 'c'));
  openreg_graph *graph = end(1);
  REQUIRE(openreg_graph_run(graph) == OPENREG_SYSTEM);
  REQUIRE(strcmp(written, "ab") == 0);
  openreg_graph_destroy(graph);
}

CHILD_TEST(nodes_depend_on_the_previous_work_of_their_stream) {
  begin(1);
  REQUIRE_OK(add(1, 'a'));
  join(2, 1);
  join(3, 1);
  REQUIRE_OK(add(2, 'b'));
  REQUIRE_OK(add(3, 'c'));
  join(1, 2);
  join(1, 3);
  REQUIRE_OK(add(1, 'd'));
  openreg_graph *graph = end(1);
  REQUIRE(openreg_graph_node_count(graph) == 4);
  REQUIRE(openreg_graph_node_at(graph, 0)->dependency_count == 0);
  for (size_t i = 1; i <= 2; i++) {
    const openreg_graph_node *node = openreg_graph_node_at(graph, i);
    REQUIRE(node->stream == (int)i + 1 && node->device == 0);
    REQUIRE(node->dependency_count == 1 && node->dependencies[0] == 0);
  }
  const openreg_graph_node *last = openreg_graph_node_at(graph, 3);
  REQUIRE(last->dependency_count == 2);
  REQUIRE(last->dependencies[0] + last->dependencies[1] == 3);
  require_run_writes(graph, "abcd");
  openreg_graph_destroy(graph);
}

CHILD_TEST(an_empty_capture_is_a_graph_of_nothing) {
  begin(5);
  openreg_graph *graph = end(5);
  REQUIRE(openreg_graph_node_count(graph) == 0);
  REQUIRE_OK(openreg_graph_run(graph));
  openreg_graph_destroy(graph);
  openreg_graph_destroy(NULL);
}

/* ---- the streams of a capture ---------------------------------------------------------------- */

CHILD_TEST(a_stream_that_captures_says_so_and_is_not_idle) {
  bool is_valid = false;
  int current = 1;
  REQUIRE(!openreg_captures_exist());
  begin(1);
  REQUIRE(openreg_captures_exist());
  REQUIRE(openreg_stream_is_capturing(0, 1) && !openreg_stream_is_capturing(0, 2));
  REQUIRE(openreg_stream_capture(0, 1, &is_valid) == 1 && is_valid);
  REQUIRE(openreg_stream_capture(0, 2, &is_valid) == 0 && !is_valid);
  REQUIRE(openreg_stream_capture_mempool(0, 1) == MEMPOOL);
  REQUIRE(openreg_stream_capture_mempool(0, 2) == 0);
  REQUIRE(!openreg_stream_is_idle(0, 1));
  REQUIRE_OK(openreg_stream_set_current(0, 1));
  REQUIRE(openreg_stream_try_begin_current(0, &current) == OPENREG_NOT_READY);
  REQUIRE(openreg_stream_try_begin_inline(0, 1) == OPENREG_NOT_READY);
  openreg_graph_destroy(end(1));
  REQUIRE(!openreg_captures_exist());
  REQUIRE(openreg_stream_is_idle(0, 1));
  REQUIRE_OK(openreg_stream_try_begin_inline(0, 1));
  openreg_stream_end_inline(0, 1);
}

CHILD_TEST(a_stream_joins_by_waiting_and_leaves_with_the_capture) {
  begin(1);
  join(2, 1);
  REQUIRE(openreg_stream_is_capturing(0, 2));
  openreg_graph_destroy(end(1)); /* it was given no work, so nothing must be joined */
  REQUIRE(!openreg_stream_is_capturing(0, 2));
  REQUIRE_OK(openreg_stream_synchronize(0, 2));
}

CHILD_TEST(work_before_a_capture_continues_and_its_end_waits_for_it) {
  gate gate = GATE_CLOSED;
  REQUIRE_OK(openreg_stream_launch(0, 1, gate_pass, &gate));
  begin(1);
  REQUIRE_OK(add(1, 'a'));
  gate_open(&gate);
  REQUIRE_OK(openreg_stream_drain(0, 1));
  REQUIRE_OK(openreg_device_drain(0));
  openreg_graph_destroy(end(1));
  REQUIRE_OK(openreg_stream_synchronize(0, 1));
  REQUIRE_OK(openreg_stream_launch(0, 1, write_nothing, NULL));
  REQUIRE_OK(openreg_stream_synchronize(0, 1));
}

CHILD_TEST(two_captures_at_a_time_are_two_graphs) {
  begin(1);
  begin(2);
  REQUIRE_OK(add(1, 'a'));
  REQUIRE_OK(add(2, 'b'));
  openreg_graph *second = end(2), *first = end(1);
  require_run_writes(first, "a");
  require_run_writes(second, "b");
  openreg_graph_destroy(first);
  openreg_graph_destroy(second);
}

CHILD_TEST(a_captured_event_can_be_recorded_again) {
  openreg_event *event = make_event();
  begin(1);
  REQUIRE_OK(openreg_event_record(event, 1));
  openreg_graph_destroy(end(1));
  REQUIRE(openreg_event_query(event) == OPENREG_CAPTURED_EVENT);
  REQUIRE(openreg_stream_wait_event(0, 2, event) == OPENREG_CAPTURED_EVENT);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE_OK(openreg_event_query(event));
  REQUIRE_OK(openreg_event_synchronize(event));
  openreg_event_destroy(event);
}

/* ---- rejected operations --------------------------------------------------------------------- */

CHILD_TEST(the_default_stream_is_not_captured) {
  REQUIRE(openreg_capture_begin(0, 0, OPENREG_CAPTURE_GLOBAL, MEMPOOL) ==
          OPENREG_CAPTURE_UNSUPPORTED);
  openreg_event *event = make_event();
  begin(1);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE(openreg_stream_wait_event(0, 0, event) == OPENREG_CAPTURE_IMPLICIT);
  require_end_fails(1, OPENREG_CAPTURE_INVALIDATED);
  openreg_event_destroy(event);
}

static openreg_status wait_for_stream(void) {
  return openreg_stream_synchronize(0, 1);
}

static openreg_status wait_for_device(void) {
  return openreg_device_synchronize(0);
}

static openreg_status ask_stream(void) {
  return openreg_stream_query(0, 1);
}

static openreg_status launch(void) {
  return openreg_stream_launch(0, 1, write_nothing, NULL);
}

static openreg_status capture_again(void) {
  return openreg_capture_begin(0, 1, OPENREG_CAPTURE_GLOBAL, MEMPOOL);
}

static openreg_status refuse(void) {
  return openreg_capture_refuse(0, 1, "a copy to pageable memory");
}

CHILD_TEST(operations_that_cannot_be_captured_fail_and_the_stream_stays_usable) {
  openreg_status (*const calls[])(void) = {wait_for_stream, wait_for_device, ask_stream,
                                           launch,          capture_again,   refuse};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    bool is_valid = true;
    begin(1);
    REQUIRE(calls[i]() == OPENREG_CAPTURE_UNSUPPORTED);
    REQUIRE(strstr(openreg_last_error(), "operation not permitted when stream is capturing"));
    REQUIRE(openreg_stream_capture(0, 1, &is_valid) != 0 && !is_valid);
    require_end_fails(1, OPENREG_CAPTURE_INVALIDATED);
    REQUIRE_OK(launch());
    REQUIRE_OK(wait_for_device());
  }
  REQUIRE_OK(refuse()); /* no stream captures */
}

CHILD_TEST(querying_a_captured_event_fails) {
  openreg_event *event = make_event();
  begin(1);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE(openreg_event_query(event) == OPENREG_CAPTURED_EVENT);
  require_end_fails(1, OPENREG_CAPTURE_INVALIDATED);
  begin(1);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE(openreg_event_synchronize(event) == OPENREG_CAPTURED_EVENT);
  require_end_fails(1, OPENREG_CAPTURE_INVALIDATED);
  openreg_event_destroy(event);
}

CHILD_TEST(a_capture_does_not_depend_on_work_outside) {
  openreg_event *event = make_event();
  begin(1);
  REQUIRE_OK(openreg_stream_wait_event(0, 1, event)); /* never recorded: nothing to wait for */
  REQUIRE_OK(openreg_event_record(event, 2));
  REQUIRE(openreg_stream_wait_event(0, 1, event) == OPENREG_CAPTURE_ISOLATION);
  require_end_fails(1, OPENREG_CAPTURE_INVALIDATED);
  openreg_event_destroy(event);
}

CHILD_TEST(captures_do_not_merge) {
  openreg_event *event = make_event();
  begin(1);
  begin(2);
  REQUIRE_OK(openreg_event_record(event, 1));
  REQUIRE(openreg_stream_wait_event(0, 2, event) == OPENREG_CAPTURE_MERGE);
  require_end_fails(1, OPENREG_CAPTURE_INVALIDATED);
  require_end_fails(2, OPENREG_CAPTURE_INVALIDATED);
  openreg_event_destroy(event);
}

CHILD_TEST(work_that_the_origin_does_not_wait_for_is_an_error) {
  begin(1);
  join(2, 1);
  REQUIRE_OK(add(2, 'a'));
  require_end_fails(1, OPENREG_CAPTURE_UNJOINED);
  REQUIRE(atomic_load(&destroyed) == 1);
  REQUIRE(!openreg_stream_is_capturing(0, 2));
}

CHILD_TEST(only_the_origin_ends_a_capture) {
  openreg_graph *graph = NULL;
  begin(1);
  join(2, 1);
  REQUIRE(openreg_capture_end(0, 2, &graph) == OPENREG_CAPTURE_UNMATCHED);
  REQUIRE(openreg_capture_end(0, 3, &graph) == OPENREG_CAPTURE_UNMATCHED);
  openreg_graph_destroy(end(1));
  REQUIRE(openreg_capture_end(0, 1, &graph) == OPENREG_CAPTURE_UNMATCHED);
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void *do_unsafe(void *status) {
  *(openreg_status *)status = openreg_capture_refuse_unsafe("memory from the device");
  return NULL;
}

static openreg_status do_unsafe_elsewhere(void) {
  pthread_t thread;
  openreg_status status = OPENREG_OK;
  REQUIRE(pthread_create(&thread, NULL, do_unsafe, &status) == 0);
  pthread_join(thread, NULL);
  return status;
}

CHILD_TEST(modes_decide_which_threads_must_not_disturb_a_capture) {
  static const struct {
    openreg_capture_mode mode;
    openreg_status here, elsewhere;
  } cases[] = {
      {OPENREG_CAPTURE_GLOBAL, OPENREG_CAPTURE_UNSUPPORTED, OPENREG_CAPTURE_UNSUPPORTED},
      {OPENREG_CAPTURE_THREAD_LOCAL, OPENREG_CAPTURE_UNSUPPORTED, OPENREG_OK},
      {OPENREG_CAPTURE_RELAXED, OPENREG_OK, OPENREG_OK},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
      openreg_status expected = elsewhere ? cases[i].elsewhere : cases[i].here;
      REQUIRE_OK(openreg_capture_begin(0, 1, cases[i].mode, MEMPOOL));
      REQUIRE((elsewhere ? do_unsafe_elsewhere() : openreg_capture_refuse_unsafe("memory")) ==
              expected);
      if (expected == OPENREG_OK)
        openreg_graph_destroy(end(1));
      else
        require_end_fails(1, OPENREG_CAPTURE_INVALIDATED);
    }
}

/* In thread-local mode only a thread's own captures forbid it anything, in relaxed mode none do. */
CHILD_TEST(a_threads_mode_exempts_it_from_captures) {
  openreg_graph *graph;
  REQUIRE(openreg_capture_exchange_mode(OPENREG_CAPTURE_RELAXED) == OPENREG_CAPTURE_GLOBAL);
  REQUIRE_OK(openreg_capture_begin(0, 1, OPENREG_CAPTURE_GLOBAL, MEMPOOL));
  REQUIRE_OK(openreg_capture_refuse_unsafe("memory"));
  REQUIRE(openreg_capture_exchange_mode(OPENREG_CAPTURE_THREAD_LOCAL) == OPENREG_CAPTURE_RELAXED);
  REQUIRE(openreg_capture_refuse_unsafe("memory") == OPENREG_CAPTURE_UNSUPPORTED);
  REQUIRE(openreg_capture_end(0, 1, &graph) == OPENREG_CAPTURE_INVALIDATED);
}

static void *do_unsafe_in_local_mode(void *status) {
  openreg_capture_exchange_mode(OPENREG_CAPTURE_THREAD_LOCAL);
  return do_unsafe(status);
}

CHILD_TEST(a_thread_in_local_mode_ignores_the_captures_of_others) {
  pthread_t thread;
  openreg_status status = OPENREG_SYSTEM;
  REQUIRE_OK(openreg_capture_begin(0, 1, OPENREG_CAPTURE_GLOBAL, MEMPOOL));
  REQUIRE(pthread_create(&thread, NULL, do_unsafe_in_local_mode, &status) == 0);
  pthread_join(thread, NULL);
  REQUIRE_OK(status);
  openreg_graph_destroy(end(1));
}

static void *end_elsewhere(void *status) {
  openreg_graph *graph = NULL;
  *(openreg_status *)status = openreg_capture_end(0, 1, &graph);
  openreg_graph_destroy(graph);
  return NULL;
}

CHILD_TEST(another_thread_can_end_only_a_relaxed_capture) {
  pthread_t thread;
  openreg_status status = OPENREG_OK;
  begin(1);
  REQUIRE(pthread_create(&thread, NULL, end_elsewhere, &status) == 0);
  pthread_join(thread, NULL);
  REQUIRE(status == OPENREG_CAPTURE_WRONG_THREAD);
  openreg_graph_destroy(end(1));
  REQUIRE_OK(openreg_capture_begin(0, 1, OPENREG_CAPTURE_RELAXED, MEMPOOL));
  REQUIRE(pthread_create(&thread, NULL, end_elsewhere, &status) == 0);
  pthread_join(thread, NULL);
  REQUIRE_OK(status);
}

CHILD_TEST(the_process_ends_while_a_stream_captures) {
  REQUIRE_OK(openreg_stream_launch(0, 1, write_nothing, NULL));
  begin(1);
  openreg_streams_shut_down();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(captured_work_is_not_done_before_its_graph_runs_and_then_each_time),
      cmocka_unit_test(a_graph_stops_with_the_failure_of_a_node),
      cmocka_unit_test(nodes_depend_on_the_previous_work_of_their_stream),
      cmocka_unit_test(an_empty_capture_is_a_graph_of_nothing),
      cmocka_unit_test(a_stream_that_captures_says_so_and_is_not_idle),
      cmocka_unit_test(a_stream_joins_by_waiting_and_leaves_with_the_capture),
      cmocka_unit_test(work_before_a_capture_continues_and_its_end_waits_for_it),
      cmocka_unit_test(two_captures_at_a_time_are_two_graphs),
      cmocka_unit_test(a_captured_event_can_be_recorded_again),
      cmocka_unit_test(the_default_stream_is_not_captured),
      cmocka_unit_test(operations_that_cannot_be_captured_fail_and_the_stream_stays_usable),
      cmocka_unit_test(querying_a_captured_event_fails),
      cmocka_unit_test(a_capture_does_not_depend_on_work_outside),
      cmocka_unit_test(captures_do_not_merge),
      cmocka_unit_test(work_that_the_origin_does_not_wait_for_is_an_error),
      cmocka_unit_test(only_the_origin_ends_a_capture),
      cmocka_unit_test(modes_decide_which_threads_must_not_disturb_a_capture),
      cmocka_unit_test(a_threads_mode_exempts_it_from_captures),
      cmocka_unit_test(a_thread_in_local_mode_ignores_the_captures_of_others),
      cmocka_unit_test(another_thread_can_end_only_a_relaxed_capture),
      cmocka_unit_test(the_process_ends_while_a_stream_captures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
