/* Sleeping on words, deadlines, and the spin count. test/device/streams/test_wake_ups.c tests that
 * no wake-up is lost.
 */
#define _GNU_SOURCE /* gettid, CPU_SET */
#include "base/futex.h"
#include "child.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* ---- deadlines ------------------------------------------------------------------------------- */

static void a_deadline_is_relative_to_now(void **state) {
  (void)state;
  int64_t before_ns = openreg_now_ns(), deadline_ns = openreg_deadline_ns(1000);
  assert_true(before_ns + 1000 <= deadline_ns && deadline_ns <= openreg_now_ns() + 1000);
}

static void deadlines_beyond_the_clock_never_come(void **state) {
  (void)state;
  assert_true(openreg_deadline_ns(UINT64_MAX) == OPENREG_NEVER);
  assert_true(openreg_deadline_ns(INT64_MAX) == OPENREG_NEVER);
  assert_true(openreg_deadline_ns(INT64_MAX / 2) < OPENREG_NEVER);
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static void no_thread_sleeps_on_a_word_that_has_changed(void **state) {
  (void)state;
  _Atomic uint32_t word = 1;
  assert_true(openreg_futex_wait(&word, 0, OPENREG_NEVER));
}

static void sleep_ends_at_the_deadline(void **state) {
  (void)state;
  _Atomic uint32_t word = 1;
  assert_false(openreg_futex_wait(&word, 1, openreg_now_ns()));
  while (openreg_futex_wait(&word, 1, openreg_deadline_ns(1000000))) {
  }
}

enum { SLEEPERS = 3, LOOKS = 1000 };

static _Atomic uint32_t word;
static _Atomic int threads[SLEEPERS], awake;

static void *sleep_until_it_changes(void *thread) {
  atomic_store((_Atomic int *)thread, (int)gettid());
  while (atomic_load(&word) == 0)
    openreg_futex_wait(&word, 0, OPENREG_NEVER);
  atomic_fetch_add(&awake, 1);
  return NULL;
}

/* Whether the kernel reports the thread as sleeping. After announcing its id, a thread of these
 * tests sleeps only on the word. */
static bool is_asleep(int thread) {
  char path[64], state = '?';
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
  fclose(file);
  return state == 'S';
}

static void await_sleepers(void) {
  for (int i = 0; i < SLEEPERS; i++)
    while (atomic_load(&threads[i]) == 0 || !is_asleep(atomic_load(&threads[i])))
      sched_yield();
}

/* The other threads stay asleep although the word has changed. */
static void the_requested_number_of_sleepers_is_woken(void **state) {
  (void)state;
  pthread_t sleepers[SLEEPERS];
  for (int i = 0; i < SLEEPERS; i++)
    assert_int_equal(
        pthread_create(&sleepers[i], NULL, sleep_until_it_changes, (void *)&threads[i]), 0);
  await_sleepers();
  atomic_store(&word, 1);
  openreg_futex_wake(&word, OPENREG_WAKE_ONE);
  while (atomic_load(&awake) < 1)
    sched_yield();
  for (int i = 0; i < LOOKS; i++) {
    sched_yield();
    assert_int_equal(atomic_load(&awake), 1);
  }
  openreg_futex_wake(&word, OPENREG_WAKE_ALL);
  for (int i = 0; i < SLEEPERS; i++)
    assert_int_equal(pthread_join(sleepers[i], NULL), 0);
  assert_int_equal(atomic_load(&awake), SLEEPERS);
}

/* ---- spinning -------------------------------------------------------------------------------- */

static void keep_cores(int wanted) {
  cpu_set_t all, kept;
  CPU_ZERO(&kept);
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&kept) < wanted; core++)
    if (CPU_ISSET(core, &all))
      CPU_SET(core, &kept);
  REQUIRE(sched_setaffinity(0, sizeof kept, &kept) == 0);
}

CHILD_TEST(threads_on_one_core_do_not_spin) {
  keep_cores(1);
  REQUIRE(openreg_spin_count() == 0);
}

CHILD_TEST(threads_on_several_cores_spin_before_sleeping) {
  cpu_set_t cores;
  keep_cores(2);
  REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
  REQUIRE(CPU_COUNT(&cores) < 2 || openreg_spin_count() > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_deadline_is_relative_to_now),
      cmocka_unit_test(deadlines_beyond_the_clock_never_come),
      cmocka_unit_test(no_thread_sleeps_on_a_word_that_has_changed),
      cmocka_unit_test(sleep_ends_at_the_deadline),
      cmocka_unit_test(the_requested_number_of_sleepers_is_woken),
      cmocka_unit_test(threads_on_one_core_do_not_spin),
      cmocka_unit_test(threads_on_several_cores_spin_before_sleeping),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
