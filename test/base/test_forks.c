/* Forks: who watches them is called, locks are whole in a child, and forks can be held up.
 *
 * Handlers of pthread_atfork stay for the life of a process, so each test is one of its own. The
 * linker's --wrap lets pthread_atfork fail.
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

/* ---- watching -------------------------------------------------------------------------------- */

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

static struct openreg_fork_watch noting =
    OPENREG_FORK_WATCH(note_before, note_in_parent, note_in_child);

static void require_called_in_child(void) {
  REQUIRE(strcmp(calls, "bc") == 0);
}

CHILD_TEST(who_watches_is_called_once_before_and_after_however_often_it_asked) {
  REQUIRE_OK(openreg_forks_watch(&noting));
  REQUIRE_OK(openreg_forks_watch(&noting));
  child_fork_and_require(require_called_in_child);
  REQUIRE(strcmp(calls, "bp") == 0);
}

CHILD_TEST(who_cannot_watch_is_told_at_each_call) {
  atfork_error = ENOMEM;
  for (int i = 0; i < 2; i++) {
    REQUIRE(openreg_forks_watch(&noting) == OPENREG_SYSTEM);
    REQUIRE(strcmp(openreg_last_error(), "openreg: watching for forks: Cannot allocate memory") ==
            0);
    atfork_error = 0;
  }
  REQUIRE(calls[0] == '\0');
}

/* ---- a lock that another thread holds -------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int first_half, second_half; /* guarded */
static _Atomic bool is_held, is_about_to_fork, has_forked;

static void lock_before(void) {
  atomic_store(&is_about_to_fork, true);
  pthread_mutex_lock(&lock);
}

static void unlock_after(void) {
  pthread_mutex_unlock(&lock);
}

static struct openreg_fork_watch locking =
    OPENREG_FORK_WATCH(lock_before, unlock_after, unlock_after);

/* Changes one half, lets a fork come, and changes the other. Lives until the fork is over: a thread
   that had ended and was not yet joined would be a leak to the child's sanitizer. */
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

CHILD_TEST(a_child_finds_a_watched_lock_free_and_what_it_guards_whole) {
  pthread_t holder;
  REQUIRE_OK(openreg_forks_watch(&locking));
  REQUIRE(pthread_create(&holder, NULL, hold_while_another_forks, NULL) == 0);
  while (!atomic_load(&is_held))
    sched_yield();
  child_fork_and_require(require_whole);
  atomic_store(&has_forked, true);
  REQUIRE(pthread_join(holder, NULL) == 0);
  require_whole();
}

/* ---- holding up ------------------------------------------------------------------------------ */

static void say_about_to_fork(void) {
  atomic_store(&is_about_to_fork, true);
}

static struct openreg_fork_watch saying = OPENREG_FORK_WATCH(say_about_to_fork, NULL, NULL);

static void *fork_meanwhile(void *unused) {
  child_fork_and_require(require_whole);
  atomic_store(&has_forked, true);
  return unused;
}

CHILD_TEST(forks_wait_while_they_are_held) {
  enum { LOOKS = 1000 };
  pthread_t forking;
  REQUIRE_OK(openreg_forks_hold());
  openreg_forks_release();
  REQUIRE_OK(openreg_forks_watch(&saying)); /* called before the fork is held up: it came later */
  REQUIRE_OK(openreg_forks_hold());
  first_half++;
  REQUIRE(pthread_create(&forking, NULL, fork_meanwhile, NULL) == 0);
  while (!atomic_load(&is_about_to_fork))
    sched_yield();
  for (int i = 0; i < LOOKS; i++) {
    sched_yield();
    REQUIRE(!atomic_load(&has_forked));
  }
  second_half++;
  openreg_forks_release();
  REQUIRE(pthread_join(forking, NULL) == 0);
  REQUIRE(atomic_load(&has_forked));
}

static void hold_in_child(void) {
  REQUIRE_OK(openreg_forks_hold());
  openreg_forks_release();
}

CHILD_TEST(a_child_can_hold_forks_as_its_parent_could) {
  hold_in_child();
  child_fork_and_require(hold_in_child);
  hold_in_child();
}

CHILD_TEST(forks_that_cannot_be_held_are_told) {
  atfork_error = ENOMEM;
  REQUIRE(openreg_forks_hold() == OPENREG_SYSTEM);
  REQUIRE(openreg_forks_hold() == OPENREG_SYSTEM); /* it was not held */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_watches_is_called_once_before_and_after_however_often_it_asked),
      cmocka_unit_test(who_cannot_watch_is_told_at_each_call),
      cmocka_unit_test(a_child_finds_a_watched_lock_free_and_what_it_guards_whole),
      cmocka_unit_test(forks_wait_while_they_are_held),
      cmocka_unit_test(a_child_can_hold_forks_as_its_parent_could),
      cmocka_unit_test(forks_that_cannot_be_held_are_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
