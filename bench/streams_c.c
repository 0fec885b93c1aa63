/* Measures streams and events without PyTorch: nanoseconds per call, and the time to wake a worker
 * relative to a futex round trip between two threads.
 *
 * Each number is the median of several turns, printed with the middle half of the turns. Ratios are
 * computed within one turn, because machines are shared and absolute times mean little.
 */
#include "device/streams/stream.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 31, LAUNCHES = 100000, CALLS = 100000, ROUND_TRIPS = 300 };

static void check(openreg_status status) {
  if (status != OPENREG_OK) {
    fprintf(stderr, "%s\n", openreg_last_error());
    exit(1);
  }
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static void print_row(const char *name, double turns[], const char *unit, const char *goal) {
  qsort(turns, TURNS, sizeof *turns, compare);
  printf("%-52s %8.2f  (%.2f to %.2f) %-5s goal: %s\n", name, turns[TURNS / 2], turns[TURNS / 4],
         turns[3 * TURNS / 4], unit, goal);
}

static void measure(const char *name, double (*turn_ns)(void), const char *goal) {
  double turns[TURNS];
  turn_ns();
  for (int i = 0; i < TURNS; i++)
    turns[i] = turn_ns();
  print_row(name, turns, "ns", goal);
}

/* Nanoseconds per evaluation of `call`, averaged over `calls` evaluations. */
#define TIME_OF(calls, call)                                                                       \
  ({                                                                                               \
    int64_t start_ns = openreg_now_ns();                                                           \
    for (int i_ = 0; i_ < (calls); i_++)                                                           \
      call;                                                                                        \
    (double)(openreg_now_ns() - start_ns) / (calls);                                               \
  })

/* ---- launches -------------------------------------------------------------------------------- */

static openreg_status do_nothing(void *unused) {
  (void)unused;
  return OPENREG_OK;
}

static double launch_turn(void) {
  double each = TIME_OF(LAUNCHES, check(openreg_stream_launch(0, 0, do_nothing, NULL)));
  check(openreg_stream_synchronize(0, 0));
  return each;
}

static double launch_and_finish_turn(void) {
  int64_t start_ns = openreg_now_ns();
  launch_turn();
  return (double)(openreg_now_ns() - start_ns) / LAUNCHES;
}

static double inline_turn(void) {
  return TIME_OF(CALLS, {
    check(openreg_stream_try_begin_inline(0, 0));
    openreg_stream_end_inline(0, 0);
  });
}

static double is_idle_turn(void) {
  return TIME_OF(CALLS, check(openreg_stream_is_idle(0, 0) ? OPENREG_OK : OPENREG_NOT_READY));
}

static double device_synchronize_turn(void) {
  return TIME_OF(CALLS, check(openreg_device_synchronize(0)));
}

/* ---- events ---------------------------------------------------------------------------------- */

static openreg_event *plain, *timing;

static double record_turn(void) {
  return TIME_OF(CALLS, check(openreg_event_record(plain, 0)));
}

static double record_timing_turn(void) {
  return TIME_OF(CALLS, check(openreg_event_record(timing, 0)));
}

static double query_turn(void) {
  return TIME_OF(CALLS, check(openreg_event_query(plain)));
}

static double wait_turn(void) {
  return TIME_OF(CALLS, check(openreg_stream_wait_event(0, 1, plain)));
}

/* ---- waking a worker ------------------------------------------------------------------------- */

static double wake_turn(void) {
  int64_t sum_ns = 0;
  for (int i = 0; i < ROUND_TRIPS; i++) {
    while (atomic_load(&openreg_streams[0][0].queue.asleep) == 0)
      sched_yield();
    int64_t start_ns = openreg_now_ns();
    check(openreg_stream_launch(0, 0, do_nothing, NULL));
    check(openreg_stream_synchronize(0, 0));
    sum_ns += openreg_now_ns() - start_ns;
  }
  return (double)sum_ns / ROUND_TRIPS;
}

static _Atomic uint32_t ball;
static _Atomic bool player_ready;

/* Sleeps until the ball is at `side`, or the game is over. */
static void await_ball(uint32_t side) {
  for (uint32_t at; (at = atomic_load(&ball)) != side && at != 2;)
    openreg_futex_wait(&ball, at, OPENREG_NEVER);
}

static void pass_ball(uint32_t to) {
  atomic_store(&ball, to);
  openreg_futex_wake(&ball, OPENREG_WAKE_ONE);
}

/* Runs on the same cores as the worker. */
static void *return_balls(void *unused) {
  openreg_device_bind_thread(0);
  atomic_store(&player_ready, true);
  for (await_ball(1); atomic_load(&ball) == 1; await_ball(1))
    pass_ball(0);
  return unused;
}

static double round_trip_turn(void) {
  return TIME_OF(ROUND_TRIPS, {
    pass_ball(1);
    await_ball(0);
  });
}

static void measure_waking(const char *title) {
  double round_trips[TURNS], wakes[TURNS], ratios[TURNS];
  pthread_t player;
  puts(title);
  atomic_store(&ball, 0);
  atomic_store(&player_ready, false);
  if (pthread_create(&player, NULL, return_balls, NULL) != 0)
    exit(1);
  while (!atomic_load(&player_ready))
    sched_yield();
  for (int i = 0; i < TURNS; i++) {
    round_trips[i] = round_trip_turn();
    wakes[i] = wake_turn();
    ratios[i] = wakes[i] / round_trips[i];
  }
  pass_ball(2);
  pthread_join(player, NULL);
  print_row("  futex round trip between two threads", round_trips, "ns", "-");
  print_row("  wake a sleeping worker and see its result", wakes, "ns", "-");
  print_row("  ... over the futex round trip", ratios, "", "at most 2");
}

int main(void) {
  check(openreg_event_create(0, false, &plain));
  check(openreg_event_create(0, true, &timing));
  check(openreg_event_record(plain, 0));
  measure("launch an empty function (10^5 in a row)", launch_turn, "under 200");
  measure("... until all have finished", launch_and_finish_turn, "-");
  measure("begin and end inline work", inline_turn, "-");
  measure("ask whether a stream is idle", is_idle_turn, "-");
  measure("record an event", record_turn, "under 50");
  measure("record a timing event on an idle stream", record_timing_turn, "under 50");
  measure("query an event", query_turn, "under 5");
  measure("wait for a reached event on another stream", wait_turn, "-");
  measure("synchronize an idle device", device_synchronize_turn, "-");
  measure_waking("host thread where the system puts it:");
  int devices;
  check(openreg_device_count(&devices));
  openreg_device_bind_thread(devices - 1);
  measure_waking("host thread on the last device's cores:");
  openreg_event_destroy(plain);
  openreg_event_destroy(timing);
  return 0;
}
