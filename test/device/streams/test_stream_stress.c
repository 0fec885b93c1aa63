/* Eight threads submit a million pieces of work to four streams of two devices: launches, inline
 * work, and waits across streams. The data that a stream's work accesses has no lock and is not
 * atomic. So the thread sanitizer finds work that runs concurrently with other work or does not see
 * its writes.
 */
#include "gate.h"

#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SUBMISSIONS = 100000 };
#else
enum { SUBMISSIONS = 1000000 };
#endif

enum { PRODUCERS = 8, STREAMS = 4, EACH = SUBMISSIONS / PRODUCERS, CROSSING = 50 };

static const struct { int device, stream; } places[STREAMS] = {{0, 0}, {0, 40}, {1, 0}, {1, 1}};

/* Accessed only by the work of one stream. */
static struct {
  int done;
  int last[PRODUCERS]; /* number of the last piece of each producer */
} tallies[STREAMS];

/* Written by work of one stream, and read by work of another one that waited for an event behind
 * it. */
static int crossed[PRODUCERS][EACH / CROSSING + 1];

static void do_piece(int place, int producer, int number) {
  REQUIRE(tallies[place].last[producer] < number);
  tallies[place].last[producer] = number;
  tallies[place].done++;
}

static openreg_status piece(void *packed) {
  uintptr_t bits = (uintptr_t)packed;
  do_piece((int)(bits & 3), (int)(bits >> 2 & 7), (int)(bits >> 5));
  return OPENREG_OK;
}

static void launch_piece(int place, int producer, int number) {
  uintptr_t bits = (uintptr_t)number << 5 | (uintptr_t)producer << 2 | (uintptr_t)place;
  REQUIRE_OK(
      openreg_stream_launch(places[place].device, places[place].stream, piece, (void *)bits));
}

static void run_or_launch_piece(int place, int producer, int number) {
  openreg_status status =
      openreg_stream_try_begin_inline(places[place].device, places[place].stream);
  if (status == OPENREG_NOT_READY) {
    launch_piece(place, producer, number);
    return;
  }
  REQUIRE_OK(status);
  do_piece(place, producer, number);
  openreg_stream_end_inline(places[place].device, places[place].stream);
}

static openreg_status write_cell(void *cell) {
  *(int *)cell = 42;
  return OPENREG_OK;
}

static openreg_status read_cell(void *cell) {
  REQUIRE(*(int *)cell == 42);
  return OPENREG_OK;
}

static void cross(int from, int to, int *cell, openreg_event *events[]) {
  openreg_event *event = events[places[from].device];
  REQUIRE_OK(openreg_stream_launch(places[from].device, places[from].stream, write_cell, cell));
  REQUIRE_OK(openreg_event_record(event, places[from].stream));
  REQUIRE_OK(openreg_stream_wait_event(places[to].device, places[to].stream, event));
  REQUIRE_OK(openreg_stream_launch(places[to].device, places[to].stream, read_cell, cell));
}

static void *produce(void *argument) {
  int producer = (int)(intptr_t)argument;
  openreg_event *events[2];
  for (int device = 0; device < 2; device++)
    REQUIRE_OK(openreg_event_create(device, producer % 2 == 0, &events[device]));
  for (int i = 0; i < EACH; i++) {
    int place = (i * 7 + i / 3 + producer) % STREAMS;
    if (i % 4 == 0)
      run_or_launch_piece(place, producer, i + 1);
    else
      launch_piece(place, producer, i + 1);
    if (i % CROSSING == 0)
      cross(place, (place + 1 + producer % 3) % STREAMS, &crossed[producer][i / CROSSING], events);
    if (i % 1000 == 0)
      REQUIRE_OK(openreg_event_synchronize(events[0]));
  }
  openreg_event_destroy(events[0]);
  openreg_event_destroy(events[1]);
  return NULL;
}

CHILD_TEST(a_million_pieces_of_work_are_done_once_and_in_order) {
  pthread_t threads[PRODUCERS];
  for (intptr_t i = 0; i < PRODUCERS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, produce, (void *)i) == 0);
  for (int i = 0; i < PRODUCERS; i++)
    REQUIRE(pthread_join(threads[i], NULL) == 0);
  REQUIRE_OK(openreg_device_synchronize(0));
  REQUIRE_OK(openreg_device_synchronize(1));
  int done = 0;
  for (int i = 0; i < STREAMS; i++)
    done += tallies[i].done;
  REQUIRE(done == PRODUCERS * EACH);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_million_pieces_of_work_are_done_once_and_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
