/* Threads that the layers start: signals are blocked, and the threads are detached and have names.
 */
#define _GNU_SOURCE /* pthread_getattr_np */
#include "base/threads.h"
#include "child.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

static int create_error;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument) {
  return create_error != 0 ? create_error
                           : __real_pthread_create(thread, attributes, function, argument);
}

/* What a thread observes about itself. */
struct findings {
  sem_t done;
  sigset_t blocked;
  int detach_state;
  char name[16];
};

static void *look_around(void *argument) {
  struct findings *findings = argument;
  pthread_attr_t attributes;
  pthread_sigmask(SIG_SETMASK, NULL, &findings->blocked);
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getdetachstate(&attributes, &findings->detach_state);
  pthread_attr_destroy(&attributes);
  openreg_thread_name("openreg a name.");
  pthread_getname_np(pthread_self(), findings->name, sizeof findings->name);
  sem_post(&findings->done);
  return NULL;
}

static void find(struct findings *findings) {
  assert_int_equal(sem_init(&findings->done, 0, 0), 0);
  assert_int_equal(openreg_thread_start(look_around, findings), 0);
  while (sem_wait(&findings->done) != 0)
    assert_int_equal(errno, EINTR);
}

static bool is_own_fault(int signal_number) {
  return signal_number == SIGSEGV || signal_number == SIGBUS || signal_number == SIGFPE ||
         signal_number == SIGILL;
}

static void signals_are_blocked_except_those_of_its_own_instructions(void **state) {
  (void)state;
  struct findings findings;
  find(&findings);
  for (int number = 1; number < SIGSYS; number++)
    if (number != SIGKILL && number != SIGSTOP)
      assert_int_equal(sigismember(&findings.blocked, number), !is_own_fault(number));
}

static void require_same_mask(const sigset_t *before) {
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, NULL, &after);
  for (int number = 1; number < SIGSYS; number++)
    assert_int_equal(sigismember(&after, number), sigismember(before, number));
}

static void the_starting_thread_keeps_its_signal_mask(void **state) {
  (void)state;
  struct findings findings;
  sigset_t before;
  sigemptyset(&before);
  sigaddset(&before, SIGUSR1);
  sigaddset(&before, SIGSEGV);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  find(&findings);
  require_same_mask(&before);
  assert_false(sigismember(&findings.blocked, SIGSEGV));
  sigemptyset(&before);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void it_is_detached(void **state) {
  (void)state;
  struct findings findings;
  find(&findings);
  assert_int_equal(findings.detach_state, PTHREAD_CREATE_DETACHED);
}

static void it_has_the_name_it_sets(void **state) {
  (void)state;
  struct findings findings;
  find(&findings);
  assert_string_equal(findings.name, "openreg a name.");
}

static void a_thread_that_cannot_be_started_gives_an_error_number(void **state) {
  (void)state;
  struct findings findings;
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, NULL, &before);
  create_error = EAGAIN;
  assert_int_equal(openreg_thread_start(look_around, &findings), EAGAIN);
  create_error = 0;
  require_same_mask(&before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(signals_are_blocked_except_those_of_its_own_instructions),
      cmocka_unit_test(the_starting_thread_keeps_its_signal_mask),
      cmocka_unit_test(it_is_detached),
      cmocka_unit_test(it_has_the_name_it_sets),
      cmocka_unit_test(a_thread_that_cannot_be_started_gives_an_error_number),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
