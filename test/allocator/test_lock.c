/* test_lock.c: the lock excludes other threads, and waiters pause longer and longer.
 *
 * The linker replaces functions of the system. While a test watches them, a sleep ends the wait by
 * releasing the lock. So a thread can wait for itself, and nothing is timed. A second thread exists
 * meanwhile, because a single thread takes the lock without checking it.
 */
#include "support.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "allocator/lock.h"

static struct lock lock;
static bool watching;
static int yields, naps, naps_to_wait;

int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_sched_yield(void) {
  if (!watching)
    return __real_sched_yield();
  assert_int_equal(naps, 0);
  yields++;
  return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
  if (!watching)
    return __real_nanosleep(time, left);
  assert_true(time->tv_sec == 0 && time->tv_nsec > 0);
  assert_null(left);
  if (++naps == naps_to_wait)
    lock_give(&lock);
  return 0;
}

static pthread_t company;
static sem_t end_of_company;

static void *keep_company(void *argument) {
  sem_wait(&end_of_company);
  return argument;
}

static int watch(void **state) {
  (void)state;
  sem_init(&end_of_company, 0, 0);
  assert_int_equal(pthread_create(&company, NULL, keep_company, NULL), 0);
  watching = true;
  yields = naps = 0;
  return 0;
}

static int look_away(void **state) {
  (void)state;
  watching = false;
  sem_post(&end_of_company);
  return pthread_join(company, NULL);
}

/* Runs first: later the C library may not report a single thread any more. */
static void a_single_thread_takes_the_lock_too(void **state) {
  (void)state;
  if (!__libc_single_threaded) /* as with a sanitizer that has its own thread */
    skip();
  for (int i = 0; i < 2; i++) {
    assert_false(atomic_load(&lock.taken));
    lock_take(&lock);
    assert_true(atomic_load(&lock.taken));
    lock_give(&lock);
  }
}

static void a_free_lock_is_taken_without_waiting(void **state) {
  (void)state;
  lock_take(&lock);
  lock_give(&lock);
  lock_take(&lock);
  lock_give(&lock);
  assert_int_equal(yields, 0);
  assert_int_equal(naps, 0);
}

static void a_waiter_yields_then_sleeps_until_the_lock_is_released(void **state) {
  (void)state;
  naps_to_wait = 3;
  lock_take(&lock);
  lock_take(&lock);
  assert_true(yields > 0);
  assert_int_equal(naps, 3);
  assert_true(atomic_load(&lock.taken));
  lock_give(&lock);
}

static void *release_on_request(void *argument) {
  sem_wait(argument);
  lock_give(&lock);
  return argument;
}

/* A thread that took the lock while it was alone excludes later threads. */
static void a_lock_taken_by_a_single_thread_excludes_later_threads(void **state) {
  (void)state;
  pthread_t thread;
  sem_t reported;
  sem_init(&reported, 0, 0);
  lock_take(&lock);
  assert_int_equal(pthread_create(&thread, NULL, release_on_request, &reported), 0);
  assert_true(atomic_load(&lock.taken));
  sem_post(&reported);
  lock_take(&lock);
  lock_give(&lock);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

enum { THREADS = 4, ROUNDS = 50000 };

static struct lock shared;
static int64_t counted; /* not atomic: the lock protects it */

static void *count(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    lock_take(&shared);
    counted++;
    lock_give(&shared);
  }
  return argument;
}

static void threads_exclude_each_other(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(counted, THREADS * ROUNDS);
}

#define WATCHED(test) cmocka_unit_test_setup_teardown(test, watch, look_away)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_single_thread_takes_the_lock_too),
      cmocka_unit_test(a_lock_taken_by_a_single_thread_excludes_later_threads),
      WATCHED(a_free_lock_is_taken_without_waiting),
      WATCHED(a_waiter_yields_then_sleeps_until_the_lock_is_released),
      cmocka_unit_test(threads_exclude_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
