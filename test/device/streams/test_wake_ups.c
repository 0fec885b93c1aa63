/* Lost wake-ups: one side goes to sleep while the other one triggers its condition.
 *
 * Threads here check once and then sleep at once. The other side starts a little later each time,
 * so that the two sides meet in every step of the protocol. The main thread is kept off the
 * worker's cores if there are others, because memory is never reordered on a single core. A
 * replacement for the futex keeps sleepers in a loop; waking real sleepers takes so long that the
 * two sides would rarely meet. A lost wake-up shows as a test that does not end. If other programs
 * use the cores, a round may take as long as a time slice and the two sides do not meet; after a
 * few such rounds the test stops.
 */
#include "device/streams/stream.h"
#include "gate.h"

#include <sched.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 5000 };
#else
enum { ROUNDS = 200000 };
#endif

enum {
  LONGEST_DELAY = 64, /* a few nanoseconds each: longer than either side needs before it sleeps */
  ENOUGH_SLOW_ROUNDS = 300,
};

/* ---- replacements ---------------------------------------------------------------------------- */

int __wrap_openreg_spin_count(void);
bool __wrap_openreg_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns);
void __wrap_openreg_futex_wake(_Atomic uint32_t *word, int count);

int __wrap_openreg_spin_count(void) {
  return 0;
}

static _Atomic uint32_t wakes;

static _Atomic uint32_t times_away;

/* Pause between two checks of a thread that must be fast but may share a core with the other
 * one. */
static void look_away(unsigned look) {
  if (look % 1000 != 999)
    return;
  atomic_fetch_add(&times_away, 1);
  sched_yield();
}

bool __wrap_openreg_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline_ns) {
  uint32_t before = atomic_load(&wakes);
  REQUIRE(deadline_ns == OPENREG_NEVER);
  if (atomic_load(word) == expected)
    for (unsigned i = 0; atomic_load(&wakes) == before; i++)
      look_away(i);
  return true;
}

void __wrap_openreg_futex_wake(_Atomic uint32_t *word, int count) {
  (void)word;
  (void)count;
  atomic_fetch_add(&wakes, 1);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Counts rounds. */
struct rounds {
  int begun, slow;
  uint32_t times_away;
};

static bool begin_round(struct rounds *rounds, int most) {
  uint32_t now = atomic_load(&times_away);
  rounds->slow += now != rounds->times_away;
  rounds->times_away = now;
  if (rounds->begun == most || rounds->slow > ENOUGH_SLOW_ROUNDS)
    return false;
  rounds->begun++;
  return true;
}

static void delay(int turns) {
  for (volatile int i = 0; i < turns; i++) {
  }
}

static void keep_off_the_worker(void) {
  REQUIRE_OK(openreg_initialize());
  openreg_device_bind_thread(1);
}

CHILD_TEST(a_worker_that_goes_to_sleep_is_woken_by_a_launch) {
  _Atomic int counter = 0;
  struct rounds rounds = {0};
  keep_off_the_worker();
  while (begin_round(&rounds, ROUNDS)) {
    REQUIRE_OK(openreg_stream_launch(0, 0, count_up, &counter));
    for (unsigned look = 0; !openreg_stream_is_idle(0, 0); look++)
      look_away(look);
    delay(rounds.begun % LONGEST_DELAY);
  }
  REQUIRE(counter == rounds.begun);
}

/* What both sides of a race do, so that they start at the same time. */
static _Atomic bool entered, go;

static openreg_status return_soon(void *turns) {
  entered = true;
  for (unsigned look = 0; !go; look++)
    look_away(look);
  delay((int)(intptr_t)turns);
  return OPENREG_OK;
}

CHILD_TEST(a_waiter_that_goes_to_sleep_is_woken_by_the_end_of_work) {
  struct rounds rounds = {0};
  keep_off_the_worker();
  while (begin_round(&rounds, ROUNDS)) {
    intptr_t turns = rounds.begun % LONGEST_DELAY;
    entered = go = false;
    REQUIRE_OK(openreg_stream_launch(0, 0, return_soon, (void *)turns));
    for (unsigned look = 0; !entered; look++)
      look_away(look);
    go = true;
    REQUIRE_OK(openreg_stream_synchronize(0, 0));
  }
}

static _Atomic bool stop;

static void *launch_always(void *counter) {
  while (!stop) {
    REQUIRE_OK(openreg_stream_launch(0, 0, count_up, counter));
    REQUIRE_OK(openreg_stream_synchronize(0, 0));
  }
  return NULL;
}

CHILD_TEST(a_worker_that_goes_to_sleep_is_woken_by_the_end_of_inline_work) {
  _Atomic int counter = 0;
  pthread_t other;
  unsigned looks = 0;
  struct rounds rounds = {0};
  REQUIRE(pthread_create(&other, NULL, launch_always, &counter) == 0);
  keep_off_the_worker();
  while (begin_round(&rounds, ROUNDS / 10)) {
    openreg_status status;
    while ((status = openreg_stream_try_begin_inline(0, 0)) == OPENREG_NOT_READY)
      look_away(looks++);
    REQUIRE_OK(status);
    delay(rounds.begun % LONGEST_DELAY);
    openreg_stream_end_inline(0, 0);
  }
  stop = true;
  REQUIRE(pthread_join(other, NULL) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_worker_that_goes_to_sleep_is_woken_by_a_launch),
      cmocka_unit_test(a_waiter_that_goes_to_sleep_is_woken_by_the_end_of_work),
      cmocka_unit_test(a_worker_that_goes_to_sleep_is_woken_by_the_end_of_inline_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
