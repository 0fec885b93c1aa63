/* test_pinned_fork.c: a forked process has its own pinned memory, whatever was initialized before.
 *
 * A child returns the line of the first failed check modulo 255, plus 1, as its exit status; or 0.
 * An alarm ends a child that hangs.
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(truth)                                                                              \
  do {                                                                                             \
    if (!(truth))                                                                                  \
      _exit(__LINE__ % 255 + 1);                                                                   \
  } while (0)

static void assert_content(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void child(char *kept, char *freed) {
  void *address = NULL;
  openreg_pinned_stats stats;
  alarm(600);
  EXPECT(openreg_in_bad_fork());
  EXPECT(openreg_pinned_contains(kept) && openreg_pinned_contains(freed));
  EXPECT(kept[0] == 7 && kept[8191] == 7);
  memset(kept, 8, 8192);
  openreg_pinned_free(freed);
  EXPECT(openreg_pinned_allocate(100, &address) == OPENREG_OK && address == freed);
  EXPECT(openreg_pinned_allocate(MIB, &address) == OPENREG_OK);
  memset(address, 9, MIB);
  openreg_pinned_free(address);
  openreg_pinned_free(freed);
  openreg_pinned_free(kept);
  EXPECT(openreg_pinned_empty_cache() == OPENREG_OK);
  EXPECT(openreg_pinned_get_stats(&stats) == OPENREG_OK);
  EXPECT(stats.active_bytes.current == 0 && stats.allocated_bytes.current == 0);
  _exit(0);
}

static void a_child_frees_what_it_inherited_without_harm(void **state) {
  (void)state;
  openreg_block_free(take(0, 0, 512)); /* initializes devices, which the child does not have */
  char *kept = pin(8192), *freed = pin(100);
  memset(kept, 7, 8192);
  memset(freed, 7, 100);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0)
    child(kept, freed);
  assert_content(pid);
  for (int i = 0; i < 8192; i++)
    assert_int_equal(kept[i], 7);
  for (int i = 0; i < 100; i++)
    assert_int_equal(freed[i], 7);
  assert_true(openreg_pinned_contains(kept) && openreg_pinned_contains(freed));
  openreg_pinned_free(kept);
  openreg_pinned_free(freed);
}

static atomic_bool stopping;

static void *allocate_all_the_time(void *argument) {
  while (!atomic_load(&stopping)) {
    void *address;
    if (openreg_pinned_allocate(MIB, &address) == OPENREG_OK)
      openreg_pinned_free(address);
    openreg_pinned_empty_cache();
  }
  return argument;
}

/* The other thread holds the lock most of the time, because it maps and unmaps while it holds it.
 */
static void a_fork_while_a_thread_allocates_hangs_nothing(void **state) {
  (void)state;
  enum { FORKS = 30 };
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, allocate_all_the_time, NULL), 0);
  for (int i = 0; i < FORKS; i++) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      void *address;
      alarm(600);
      EXPECT(openreg_pinned_allocate(MIB, &address) == OPENREG_OK);
      memset(address, 1, MIB);
      openreg_pinned_free(address);
      EXPECT(openreg_pinned_empty_cache() == OPENREG_OK);
      _exit(0);
    }
    assert_content(pid);
  }
  atomic_store(&stopping, true);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_child_frees_what_it_inherited_without_harm),
      cmocka_unit_test(a_fork_while_a_thread_allocates_hangs_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
