/* Makes each system call of the layer fail once, at each place where it is made, in one of two
 * ranks.
 *
 * Joining then fails with a message, or succeeds nevertheless. After a failure the rank joins
 * again: that succeeds, or its rank was released and the other rank has learned of it. At the end
 * no descriptor is left open.
 */
#include "faults.h"
#include "helper.h"
#include "ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

enum { SMALL = 1000, LARGE = 100000 };

static openreg_comm_id *id; /* for both ranks */

static openreg_status reduce(openreg_comm *comm, void *memory, size_t count) {
  openreg_comm_buffer part = {memory, count};
  openreg_collective sum = byte_call(OPENREG_COLLECTIVE_ALL_REDUCE, &part, &part);
  return openreg_comm_run(comm, &sum);
}

static openreg_status exchange(openreg_comm *comm, unsigned char *memory, int count) {
  enum { MOST = 40 };
  openreg_message messages[2 * MOST];
  for (int i = 0; i < count; i++) {
    int peer = 1 - openreg_comm_rank(comm);
    messages[2 * i] = (openreg_message){true, peer, OPENREG_DTYPE_UINT8, {memory, LARGE}, false};
    messages[2 * i + 1] =
        (openreg_message){false, peer, OPENREG_DTYPE_UINT8, {memory + LARGE, LARGE}, false};
  }
  return openreg_comm_exchange(comm, messages, 2 * count, AGES_NS);
}

static void require_plausible(openreg_status status) {
  const char *message = openreg_last_error();
  REQUIRE(status == OPENREG_SYSTEM || status == OPENREG_OUT_OF_MEMORY ||
          status == OPENREG_INVALID_ARGUMENT || status == OPENREG_COMMUNICATION_FAILURE);
  REQUIRE(strncmp(message, "openreg: ", 9) == 0 && strlen(message) > 20);
}

/* Repeats the call when the fault has made it fail. */
static openreg_status join(int rank, openreg_comm **comm) {
  openreg_status status = openreg_comm_init(id, 2, rank, rank, NULL, comm);
  if (status == OPENREG_OK || !atomic_load(&fault_armed))
    return status;
  REQUIRE(atomic_load(&fault_current->struck));
  require_plausible(status);
  return openreg_comm_init(id, 2, rank, rank, NULL, comm);
}

static void use(openreg_comm *comm, void *memory) {
  REQUIRE_OK(reduce(comm, memory, SMALL));
  REQUIRE_OK(reduce(comm, memory, LARGE));
  REQUIRE_OK(exchange(comm, memory, 3));
  openreg_status status = exchange(comm, memory, 40); /* needs host memory */
  if (status == OPENREG_OK)
    return;
  REQUIRE(status == OPENREG_OUT_OF_MEMORY && atomic_load(&fault_current->struck));
  REQUIRE_OK(exchange(comm, memory, 40));
}

static void be_rank(int rank, bool is_armed) {
  openreg_comm *comm;
  void *memory;
  size_t bytes;
  REQUIRE_OK(openreg_arena_get(rank, &memory, &bytes));
  openreg_comm *warm[1];
  REQUIRE_OK(openreg_comm_init_all(1, &rank, NULL, warm)); /* does what is done once in a process */
  openreg_comm_destroy(warm[0]);
  int files = count_descriptors();
  if (rank == 0) {
    atomic_store(&fault_armed, is_armed);
    openreg_status status = openreg_comm_id_create(2, id);
    if (status != OPENREG_OK) {
      REQUIRE(atomic_load(&fault_current->struck));
      require_plausible(status);
      REQUIRE_OK(openreg_comm_id_create(2, id));
    }
    atomic_store(&fault_armed, false);
    report(0);
  }
  await_cue();
  atomic_store(&fault_armed, is_armed);
  openreg_status status = join(rank, &comm);
  if (status == OPENREG_OK) {
    use(comm, memory);
    openreg_comm_destroy(comm);
  } else {
    require_plausible(status);
    REQUIRE(atomic_load(&fault_current->struck));
  }
  atomic_store(&fault_armed, false);
  openreg_comm_id_drop(id);
  while (count_descriptors() > files) /* the watchdog closes its descriptors when it ends */
    sched_yield();
}

static void armed_creator(void) {
  be_rank(0, true);
}

static void creator(void) {
  be_rank(0, false);
}

static void armed_joiner(void) {
  be_rank(1, true);
}

static void joiner(void) {
  be_rank(1, false);
}

/* Returns whether the layer made such a call. */
static bool run_once(enum fault kind, int error, int call, int armed) {
  *fault_current = (fault_plan){.kind = kind, .error = error, .call = call};
  helper first = helper_start(armed == 0 ? armed_creator : creator);
  helper second = helper_start(armed == 1 ? armed_joiner : joiner);
  helper_receive(&first);
  helper_cue(&first);
  helper_cue(&second);
  helper_finish(&first);
  helper_finish(&second);
  return atomic_load(&fault_current->struck);
}

static const enum fault kinds[] = {
    FAULT_mmap64,  FAULT_madvise, FAULT_memfd_create, FAULT_ftruncate64, FAULT_pwrite64,
    FAULT_pread64, FAULT_read,    FAULT_fcntl64,      FAULT_open64,      FAULT_fstat64,
    FAULT_close,   FAULT_munmap,  FAULT_getrandom,    FAULT_eventfd,     FAULT_poll,
    FAULT_syscall, FAULT_malloc,  FAULT_calloc,       FAULT_realloc,     FAULT_pthread_create,
};

static void fail_each(void) {
  enum { MOST_CALLS = 60 }; /* a wait may make any number of calls */
  id = share_memory(sizeof *id);
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    for (int armed = 0; armed < 2; armed++) {
      int call = 0;
      while (call < MOST_CALLS && run_once(kinds[i], fault_error(kinds[i], 0), call, armed)) {
        fprintf(stderr, "%s %d of rank %d\n", fault_name(kinds[i]), call, armed);
        call++;
      }
    }
}

static void each_system_call_may_fail(void **state) {
  (void)state;
  fault_prepare();
  child_expect_pass(fail_each, SMALL_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_system_call_may_fail)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
