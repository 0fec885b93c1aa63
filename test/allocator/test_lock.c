/* test_lock.c: the lock excludes, waits ever more patiently, and grants seats.
 *
 * The linker puts functions in front of the system's. While a test watches them, a nap ends the
 * wait by giving the lock back: so a thread can wait for itself, and nothing is timed.
 */
#include "support.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
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

/* A nap in another thread, by which the test knows that it waits. */
static atomic_bool telling;
static int told;
static pthread_mutex_t nap_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t nap_begun = PTHREAD_COND_INITIALIZER;

static void tell(void) {
  pthread_mutex_lock(&nap_mutex);
  told++;
  pthread_cond_signal(&nap_begun);
  pthread_mutex_unlock(&nap_mutex);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
  if (telling)
    tell();
  if (!watching)
    return __real_nanosleep(time, left);
  assert_true(time->tv_sec == 0 && time->tv_nsec > 0);
  assert_null(left);
  if (++naps == naps_to_wait)
    lock_give(&lock);
  return 0;
}

/* All that the allocator asks for this way is membarrier, with four arguments. */
static bool without_membarrier;
long __real_syscall(long number, int command, int flags, int cpu);
long __wrap_syscall(long number, int command, int flags, int cpu);

long __wrap_syscall(long number, int command, int flags, int cpu) {
  return without_membarrier ? -1 : __real_syscall(number, command, flags, cpu);
}

static int watch(void **state) {
  (void)state;
  watching = true;
  yields = naps = 0;
  return 0;
}

static int look_away(void **state) {
  (void)state;
  watching = false;
  return 0;
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

static void a_waiter_yields_then_naps_until_the_lock_is_given_back(void **state) {
  (void)state;
  naps_to_wait = 3;
  lock_take(&lock);
  lock_take(&lock);
  assert_true(yields > 0);
  assert_int_equal(naps, 3);
  assert_true(atomic_load(&lock.taken));
  lock_give(&lock);
}

enum { THREADS = 4, ROUNDS = 50000 };

static struct lock shared;
static int64_t counted; /* not atomic: the lock makes it whole */

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

/* ---- seats ----------------------------------------------------------------------------------- */

/* Systems may lack membarrier, or forbid it; then there are no seats. */
static void skip_without_seats(void) {
  if (__real_syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0)
    skip();
}

static void take_and_give(struct lock *one, int times) {
  for (int i = 0; i < times; i++) {
    lock_take(one);
    counted++;
    lock_give(one);
  }
}

static void *in_another_thread(void *one) {
  take_and_give(one, 1);
  return NULL;
}

static void use_in_another_thread(struct lock *one) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, in_another_thread, one), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_thread_that_takes_it_in_a_row_gets_a_seat(void **state) {
  (void)state;
  skip_without_seats();
  struct lock one = {0};
  take_and_give(&one, SEAT_TAKES);
  assert_null(atomic_load(&one.seat));
  take_and_give(&one, 1);
  assert_ptr_equal(atomic_load(&one.seat), &one.seats[0]);
  lock_take(&one);
  assert_ptr_equal(one.held, &one.seats[0]);
  assert_false(atomic_load(&one.taken));
  lock_give(&one);
  assert_false(atomic_load(&one.seats[0].inside));
}

/* And the next costs twice as many takes, until there are no more. */
static void another_thread_takes_the_seat_away(void **state) {
  (void)state;
  skip_without_seats();
  struct lock one = {0};
  int takes = SEAT_TAKES;
  for (int i = 0; i < SEAT_COUNT; i++, takes *= 2) {
    take_and_give(&one, takes);
    assert_null(atomic_load(&one.seat));
    take_and_give(&one, 2);
    assert_ptr_equal(atomic_load(&one.seat), &one.seats[i]);
    use_in_another_thread(&one);
    assert_null(atomic_load(&one.seat));
  }
  take_and_give(&one, 2 * takes);
  assert_null(atomic_load(&one.seat));
}

static void without_membarrier_there_are_no_seats(void **state) {
  (void)state;
  struct lock one = {0};
  without_membarrier = true;
  take_and_give(&one, 10 * SEAT_TAKES);
  without_membarrier = false;
  assert_null(atomic_load(&one.seat));
}

static pthread_barrier_t handover;
enum { BURSTS = 200, BURST = 700 };

/* Two threads take turns, and in each turn the lock comes to be taken through a seat or not. */
static void *in_bursts(void *first) {
  for (int i = 0; i < BURSTS; i++) {
    if (i % 2 == (first != NULL))
      take_and_give(&shared, BURST);
    else
      take_and_give(&shared, 1);
    pthread_barrier_wait(&handover);
  }
  return NULL;
}

static void threads_that_hand_over_exclude_each_other(void **state) {
  (void)state;
  pthread_t threads[2];
  shared = (struct lock){0};
  counted = 0;
  assert_int_equal(pthread_barrier_init(&handover, NULL, 2), 0);
  assert_int_equal(pthread_create(&threads[0], NULL, in_bursts, NULL), 0);
  assert_int_equal(pthread_create(&threads[1], NULL, in_bursts, &handover), 0);
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_join(threads[i], NULL), 0);
  pthread_barrier_destroy(&handover);
  assert_int_equal(counted, BURSTS * (BURST + 1));
  skip_without_seats();
  assert_true(shared.seats_granted > 0);
}

static void an_owner_inside_is_waited_for(void **state) {
  (void)state;
  skip_without_seats();
  pthread_t thread;
  shared = (struct lock){0};
  take_and_give(&shared, SEAT_TAKES + 1);
  counted = 0;
  lock_take(&shared);
  assert_non_null(shared.held);
  telling = true;
  assert_int_equal(pthread_create(&thread, NULL, in_another_thread, &shared), 0);
  pthread_mutex_lock(&nap_mutex);
  while (told == 0)
    pthread_cond_wait(&nap_begun, &nap_mutex);
  pthread_mutex_unlock(&nap_mutex);
  assert_int_equal(counted, 0);
  telling = false;
  lock_give(&shared);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(counted, 1);
}

#define WATCHED(test) cmocka_unit_test_setup_teardown(test, watch, look_away)

int main(void) {
  const struct CMUnitTest tests[] = {
      WATCHED(a_free_lock_is_taken_without_waiting),
      WATCHED(a_waiter_yields_then_naps_until_the_lock_is_given_back),
      cmocka_unit_test(threads_exclude_each_other),
      cmocka_unit_test(a_thread_that_takes_it_in_a_row_gets_a_seat),
      cmocka_unit_test(another_thread_takes_the_seat_away),
      cmocka_unit_test(without_membarrier_there_are_no_seats),
      cmocka_unit_test(threads_that_hand_over_exclude_each_other),
      cmocka_unit_test(an_owner_inside_is_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
