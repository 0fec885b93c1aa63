/* test_fork.c: in a process that was forked after initialization nothing works, and nothing hangs.
 *
 * A child returns the line of the first failed check modulo 256 as its exit status, or 0. An alarm
 * ends a child that hangs.
 */
#include "support.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void observe(const openreg_memory_event *event) {
  (void)event;
}

static sem_t inside, go_on;
static bool stopping;

openreg_status __real_openreg_ledger_reserve(int device, uint64_t bytes);
openreg_status __wrap_openreg_ledger_reserve(int device, uint64_t bytes);

/* Called with the lock of the device held: a gate inside it. */
openreg_status __wrap_openreg_ledger_reserve(int device, uint64_t bytes) {
  if (stopping) {
    sem_post(&inside);
    sem_wait(&go_on);
  }
  return __real_openreg_ledger_reserve(device, bytes);
}

#define EXPECT(truth)                                                                              \
  do {                                                                                             \
    if (!(truth))                                                                                  \
      _exit(__LINE__ % 255 + 1);                                                                   \
  } while (0)

static void child(openreg_block *block) {
  openreg_block *none = NULL;
  openreg_memory_stats stats;
  double fraction;
  void *address = block->address;
  alarm(600);
  EXPECT(openreg_block_allocate(0, 0, 512, &none) == OPENREG_BAD_FORK);
  EXPECT(openreg_block_allocate(0, 0, 0, &none) == OPENREG_BAD_FORK);
  EXPECT(none == NULL);
  EXPECT(openreg_last_error()[0] != 0);
  openreg_block_free(block);
  openreg_block_free(NULL);
  EXPECT(block->address == address);
  EXPECT(openreg_block_find(address) == NULL);
  EXPECT(openreg_block_record_stream(block, 1) == OPENREG_BAD_FORK);
  EXPECT(openreg_cache_empty(0) == OPENREG_BAD_FORK);
  EXPECT(openreg_memory_set_fraction(0, 0.5) == OPENREG_BAD_FORK);
  EXPECT(openreg_memory_get_fraction(0, &fraction) == OPENREG_BAD_FORK);
  EXPECT(openreg_memory_get_stats(0, &stats) == OPENREG_BAD_FORK);
  uint64_t mempool = 0;
  openreg_block **blocks = NULL;
  openreg_mempool_checkpoint *checkpoint = NULL;
  size_t count;
  openreg_ipc_handle handle = {{0}};
  openreg_memory_snapshot snapshot;
  EXPECT(openreg_mempool_create(false, NULL, &mempool) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_release(1) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_allocate_id(&mempool) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_retain(1) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_blocks(0, 1, &blocks, &count) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_take_checkpoint(0, 1, &checkpoint) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_current(0, &mempool) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_set_current(0, 0) == OPENREG_BAD_FORK);
  EXPECT(openreg_mempool_empty(0) == OPENREG_BAD_FORK);
  openreg_mempool_stats *accounts;
  EXPECT(openreg_mempool_get_stats(0, &accounts, &count) == OPENREG_BAD_FORK);
  EXPECT(openreg_block_export(block, 0, &handle) == OPENREG_BAD_FORK);
  EXPECT(openreg_memory_collect_shared(0) == OPENREG_BAD_FORK);
  EXPECT(openreg_memory_take_snapshot(0, &snapshot) == OPENREG_BAD_FORK);
  EXPECT(openreg_memory_add_observer(observe) == OPENREG_BAD_FORK);
  openreg_memory_remove_observer(observe);
  EXPECT(openreg_memory_reset_peak(0) == OPENREG_BAD_FORK);
  EXPECT(openreg_memory_reset_accumulated(0) == OPENREG_BAD_FORK);
  EXPECT(!openreg_memory_is_valid(0));
  _exit(0);
}

static void assert_child_content(openreg_block *block) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0)
    child(block);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_forked_process_has_no_devices(void **state) {
  (void)state;
  openreg_block *block = take(0, 0, 512);
  openreg_memory_stats before = stats_of(0);
  assert_child_content(block);
  openreg_memory_stats after = stats_of(0);
  assert_memory_equal(&before, &after, sizeof before);
  assert_ptr_equal(openreg_block_find(block->address), block);
  openreg_block_free(block);
}

static void *reserve(void *result) {
  openreg_block **block = result;
  if (openreg_block_allocate(0, 1, 512, block) != OPENREG_OK)
    *block = NULL;
  return NULL;
}

static void a_fork_while_a_thread_holds_the_lock_hangs_nothing(void **state) {
  (void)state;
  pthread_t thread;
  openreg_block *block = take(0, 0, 512), *other = NULL;
  sem_init(&inside, 0, 0);
  sem_init(&go_on, 0, 0);
  stopping = true;
  assert_int_equal(pthread_create(&thread, NULL, reserve, &other), 0);
  sem_wait(&inside);
  assert_child_content(block);
  sem_post(&go_on);
  assert_int_equal(pthread_join(thread, NULL), 0);
  stopping = false;
  assert_non_null(other);
  openreg_block_free(other);
  openreg_block_free(block);
}

int main(void) {
  configure();
  const struct CMUnitTest tests[] = {
      ON_EMPTY_DEVICES(a_forked_process_has_no_devices),
      ON_EMPTY_DEVICES(a_fork_while_a_thread_holds_the_lock_hangs_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
