/* Forks: handlers run, locks are consistent in a child, and forks can be blocked.
 *
 * Handlers of pthread_atfork stay installed for the life of a process, so each test runs in its own
 * process. The linker's --wrap makes pthread_atfork fail.
 */
#include "base/forks.h"
#include "child.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int atfork_error;

int __real_pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
int __wrap_pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
int __wrap_pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void)) {
  return atfork_error != 0 ? atfork_error : __real_pthread_atfork(before, in_parent, in_child);
}

/* ---- handlers -------------------------------------------------------------------------------- */

static char calls[16];

static void note_before(void) {
  strcat(calls, "b");
}

static void note_in_parent(void) {
  strcat(calls, "p");
}

static void note_in_child(void) {
  strcat(calls, "c");
}

static struct openreg_fork_handlers noting =
    OPENREG_FORK_HANDLERS(note_before, note_in_parent, note_in_child);

static void require_called_in_child(void) {
  REQUIRE(strcmp(calls, "bc") == 0);
}

CHILD_TEST(handlers_run_once_per_fork_however_often_they_are_registered) {
  REQUIRE_OK(openreg_forks_register(&noting));
  REQUIRE_OK(openreg_forks_register(&noting));
  child_fork_and_require(require_called_in_child);
  REQUIRE(strcmp(calls, "bp") == 0);
}

CHILD_TEST(a_failed_registration_is_reported_at_each_call) {
  atfork_error = ENOMEM;
  for (int i = 0; i < 2; i++) {
    REQUIRE(openreg_forks_register(&noting) == OPENREG_SYSTEM);
    REQUIRE(strcmp(openreg_last_error(),
                   "openreg: cannot register fork handlers: Cannot allocate memory") == 0);
    atfork_error = 0;
  }
  REQUIRE(calls[0] == '\0');
}

/* ---- a lock held by another thread ----------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int first_half, second_half; /* guarded by the lock */
static _Atomic bool is_held, is_about_to_fork, has_forked;

static void lock_before(void) {
  atomic_store(&is_about_to_fork, true);
  pthread_mutex_lock(&lock);
}

static void unlock_after(void) {
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_handlers locking =
    OPENREG_FORK_HANDLERS(lock_before, unlock_after, unlock_after);

/* Changes one half, waits for a fork, and changes the other half. Stays alive until the fork is
 * over: the child's leak sanitizer would report a thread that ended without being joined. */
static void *hold_while_another_forks(void *unused) {
  pthread_mutex_lock(&lock);
  first_half++;
  atomic_store(&is_held, true);
  while (!atomic_load(&is_about_to_fork))
    sched_yield();
  second_half++;
  pthread_mutex_unlock(&lock);
  while (!atomic_load(&has_forked))
    sched_yield();
  return unused;
}

static void require_whole(void) {
  REQUIRE(pthread_mutex_trylock(&lock) == 0);
  REQUIRE(first_half == 1 && second_half == 1);
}

CHILD_TEST(a_child_finds_the_lock_free_and_its_data_consistent) {
  pthread_t holder;
  REQUIRE_OK(openreg_forks_register(&locking));
  REQUIRE(pthread_create(&holder, NULL, hold_while_another_forks, NULL) == 0);
  while (!atomic_load(&is_held))
    sched_yield();
  child_fork_and_require(require_whole);
  atomic_store(&has_forked, true);
  REQUIRE(pthread_join(holder, NULL) == 0);
  require_whole();
}

/* ---- blocking forks -------------------------------------------------------------------------- */

static void say_about_to_fork(void) {
  atomic_store(&is_about_to_fork, true);
}

static struct openreg_fork_handlers saying = OPENREG_FORK_HANDLERS(say_about_to_fork, NULL, NULL);

static void *fork_meanwhile(void *unused) {
  child_fork_and_require(require_whole);
  atomic_store(&has_forked, true);
  return unused;
}

CHILD_TEST(forks_wait_while_they_are_blocked) {
  enum { LOOKS = 1000 };
  pthread_t forking;
  REQUIRE_OK(openreg_forks_block());
  openreg_forks_unblock();
  REQUIRE_OK(openreg_forks_register(
      &saying)); /* called before the fork is blocked, because it was registered later */
  REQUIRE_OK(openreg_forks_block());
  first_half++;
  REQUIRE(pthread_create(&forking, NULL, fork_meanwhile, NULL) == 0);
  while (!atomic_load(&is_about_to_fork))
    sched_yield();
  for (int i = 0; i < LOOKS; i++) {
    sched_yield();
    REQUIRE(!atomic_load(&has_forked));
  }
  second_half++;
  openreg_forks_unblock();
  REQUIRE(pthread_join(forking, NULL) == 0);
  REQUIRE(atomic_load(&has_forked));
}

static void hold_in_child(void) {
  REQUIRE_OK(openreg_forks_block());
  openreg_forks_unblock();
}

CHILD_TEST(a_child_can_block_forks_like_its_parent) {
  hold_in_child();
  child_fork_and_require(hold_in_child);
  hold_in_child();
}

CHILD_TEST(forks_that_cannot_be_blocked_are_reported) {
  atfork_error = ENOMEM;
  REQUIRE(openreg_forks_block() == OPENREG_SYSTEM);
  REQUIRE(openreg_forks_block() == OPENREG_SYSTEM); /* it was not blocked */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(handlers_run_once_per_fork_however_often_they_are_registered),
      cmocka_unit_test(a_failed_registration_is_reported_at_each_call),
      cmocka_unit_test(a_child_finds_the_lock_free_and_its_data_consistent),
      cmocka_unit_test(forks_wait_while_they_are_blocked),
      cmocka_unit_test(a_child_can_block_forks_like_its_parent),
      cmocka_unit_test(forks_that_cannot_be_blocked_are_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
