/* Joining a communicator: rejected arguments, missing ranks, and that no resources leak. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "collectives/doorbell.h"
#include "ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT_NS = 50000000 };

static openreg_comm_id id;

static openreg_status join(int size, int rank, int device, uint64_t timeout_ns,
                           openreg_comm **comm) {
  openreg_comm_options options = {.name = "dp", .timeout_ns = timeout_ns};
  return openreg_comm_init(&id, size, rank, device, &options, comm);
}

/* Runs `body` in a process that is forked before this one initializes its devices. */
static pid_t start(void (*body)(int), int rank) {
  pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid > 0)
    return pid;
  REQUIRE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  body(rank);
  exit(0);
}

static void start_all(int size, void (*body)(int), pid_t pids[]) {
  for (int rank = 0; rank < size; rank++)
    pids[rank] = start(body, rank);
}

static void run_all(int size, void (*body)(int)) {
  pid_t pids[MOST_RANKS];
  start_all(size, body, pids);
  for (int rank = 0; rank < size; rank++)
    expect_exit(pids[rank]);
}

static void require_barrier(openreg_comm *comm) {
  openreg_collective barrier = {.kind = OPENREG_COLLECTIVE_BARRIER, .timeout_ns = AGES_NS};
  REQUIRE_OK(openreg_comm_run(comm, &barrier));
}

/* ---- refused --------------------------------------------------------------------------------- */

CHILD_TEST(ids_that_cannot_be_joined_are_rejected) {
  openreg_comm *comm;
  REQUIRE(openreg_comm_id_create(0, &id) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(openreg_comm_id_create(OPENREG_MAX_RANKS + 1, &id) == OPENREG_INVALID_ARGUMENT);
  memset(&id, 7, sizeof id);
  REQUIRE(!openreg_comm_id_is_reachable(&id));
  REQUIRE(join(2, 0, 0, AGES_NS, &comm) == OPENREG_INVALID_ARGUMENT);
  openreg_comm_id_drop(&id);

  REQUIRE_OK(openreg_comm_id_create(2, &id));
  REQUIRE(openreg_comm_id_is_reachable(&id));
  REQUIRE(join(3, 0, 0, AGES_NS, &comm) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(join(2, 2, 0, AGES_NS, &comm) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(join(2, -1, 0, AGES_NS, &comm) == OPENREG_INVALID_ARGUMENT);
  REQUIRE(join(2, 0, 2, AGES_NS, &comm) == OPENREG_INVALID_DEVICE);

  openreg_comm_id forged = id;
  forged.bytes[24] ^= 1; /* the nonce */
  REQUIRE(!openreg_comm_id_is_reachable(&forged));
  openreg_comm_id_drop(&forged);
  REQUIRE(openreg_comm_id_is_reachable(&id));
  openreg_comm_id_drop(&id);
  REQUIRE(!openreg_comm_id_is_reachable(&id));
  REQUIRE(join(2, 0, 0, AGES_NS, &comm) == OPENREG_INVALID_ARGUMENT);
}

static openreg_comm_id *shared_id;

static void make_shared_id(int rank) {
  (void)rank;
  REQUIRE_OK(openreg_comm_id_create(2, shared_id));
  REQUIRE(openreg_comm_id_is_reachable(shared_id));
}

CHILD_TEST(an_id_is_unreachable_when_its_creator_has_ended) {
  shared_id = share_memory(sizeof *shared_id);
  expect_exit(start(make_shared_id, 0));
  REQUIRE(!openreg_comm_id_is_reachable(shared_id));
}

/* ---- missing ranks --------------------------------------------------------------------------- */

static _Atomic int *joined;

/* A rank that has joined begins to wait for the others. */
bool __real_openreg_doorbell_wait(struct openreg_doorbell *bell, int spins, int64_t deadline_ns,
                                  bool (*condition)(void *), void *context);
bool __wrap_openreg_doorbell_wait(struct openreg_doorbell *bell, int spins, int64_t deadline_ns,
                                  bool (*condition)(void *), void *context);

bool __wrap_openreg_doorbell_wait(struct openreg_doorbell *bell, int spins, int64_t deadline_ns,
                                  bool (*condition)(void *), void *context) {
  static bool is_counted;
  if (joined != NULL && !is_counted)
    atomic_fetch_add(joined, 1);
  is_counted = true;
  return __real_openreg_doorbell_wait(bell, spins, deadline_ns, condition, context);
}

/* Rank 0 gives up after it has seen rank 1 wait. */
static void join_in_vain(int rank) {
  openreg_comm *comm;
  while (rank == 0 && atomic_load(joined) == 0)
    sched_yield();
  require_failure(join(5, rank, rank, rank == 0 ? SHORT_NS : AGES_NS, &comm),
                  "openreg: ranks 2, 3, 4 of 5 of group 'dp' did not join within 0.05 s");
}

static void join_two_of_five(void) {
  joined = share_memory(sizeof *joined);
  REQUIRE_OK(openreg_comm_id_create(5, &id));
  run_all(2, join_in_vain);
}

static void ranks_that_do_not_join_are_named(void **state) {
  (void)state;
  child_expect_pass(join_two_of_five, SMALL_DEVICES);
}

/* Rank 1 is killed while it waits for rank 2, which never joins. */
static void wait_for_the_dead(int rank) {
  openreg_comm *comm;
  openreg_status status = join(3, rank, rank, AGES_NS, &comm);
  require_failure(status, "openreg: rank 1 of group 'dp' has died (process ");
}

static void kill_while_joining(void) {
  pid_t pids[2];
  joined = share_memory(sizeof *joined);
  REQUIRE_OK(openreg_comm_id_create(3, &id));
  start_all(2, wait_for_the_dead, pids);
  while (atomic_load(joined) < 2)
    sched_yield();
  REQUIRE(kill(pids[1], SIGKILL) == 0);
  expect_killed(pids[1]);
  expect_exit(pids[0]);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void join_with_one_device(int rank) {
  openreg_comm *comm;
  require_failure(join(3, rank, rank == 2 ? 0 : rank, AGES_NS, &comm),
                  "openreg: rank 0 and rank 2 of group 'dp' have the same device");
}

static void share_by_option(int rank) {
  openreg_comm *comm;
  openreg_comm_options options = {.timeout_ns = AGES_NS, .share_device = true};
  REQUIRE_OK(openreg_comm_init(&id, 3, rank, 0, &options, &comm));
  REQUIRE(openreg_comm_rank(comm) == rank && openreg_comm_size(comm) == 3 &&
          openreg_comm_device(comm) == 0);
  require_barrier(comm);
  openreg_comm_destroy(comm);
}

static void share_devices(void) {
  REQUIRE_OK(openreg_comm_id_create(3, &id));
  run_all(3, join_with_one_device);
  REQUIRE_OK(openreg_comm_id_create(3, &id));
  run_all(3, share_by_option);
}

static void two_ranks_with_one_device_are_an_error_unless_allowed(void **state) {
  (void)state;
  child_expect_pass(share_devices, MANY_DEVICES);
}

static void join_twice(int rank) {
  openreg_comm *comm, *second;
  REQUIRE_OK(join(2, rank, rank, AGES_NS, &comm));
  REQUIRE(join(2, rank, rank, AGES_NS, &second) == OPENREG_INVALID_ARGUMENT);
  require_barrier(comm);
  openreg_comm_destroy(comm);
}

static void join_twice_each(void) {
  REQUIRE_OK(openreg_comm_id_create(2, &id));
  run_all(2, join_twice);
}

static void a_rank_joins_once(void **state) {
  (void)state;
  child_expect_pass(join_twice_each, SMALL_DEVICES);
}

/* ---- one thread, several devices ------------------------------------------------------------- */

CHILD_TEST(one_thread_joins_with_all_its_devices) {
  static const int devices[] = {1, 0}, twice[] = {1, 1};
  openreg_comm *comms[2];
  REQUIRE(openreg_comm_init_all(2, twice, NULL, comms) == OPENREG_COMMUNICATION_FAILURE);
  REQUIRE(openreg_comm_init_all(0, devices, NULL, comms) == OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_comm_init_all(2, devices, NULL, comms));
  openreg_collective barrier = {.kind = OPENREG_COLLECTIVE_BARRIER, .timeout_ns = AGES_NS};
  for (int i = 0; i < 2; i++) {
    REQUIRE(openreg_comm_device(comms[i]) == devices[i] && openreg_comm_rank(comms[i]) == i);
    REQUIRE_OK(openreg_comm_begin(comms[i], &barrier));
  }
  for (int i = 0; i < 2; i++)
    REQUIRE_OK(openreg_comm_finish(comms[i], UINT64_MAX));
  for (int i = 0; i < 2; i++)
    openreg_comm_destroy(comms[i]);
  openreg_comm_destroy(NULL);
}

/* The largest number of ranks; one thread runs all of them in turn. */
CHILD_TEST(the_largest_group_computes) {
  static int devices[OPENREG_MAX_RANKS];
  static openreg_comm *comms[OPENREG_MAX_RANKS];
  static openreg_comm_buffer in[OPENREG_MAX_RANKS], out[OPENREG_MAX_RANKS];
  enum { SPACE = 16384 };
  openreg_comm_options options = {.timeout_ns = AGES_NS, .share_device = true};
  REQUIRE(openreg_comm_init_all(OPENREG_MAX_RANKS + 1, devices, &options, comms) ==
          OPENREG_INVALID_ARGUMENT);
  REQUIRE_OK(openreg_comm_init_all(OPENREG_MAX_RANKS, devices, &options, comms));
  void *base;
  size_t bytes;
  REQUIRE_OK(openreg_arena_get(0, &base, &bytes));
  openreg_collective sum = {.kind = OPENREG_COLLECTIVE_ALL_REDUCE,
                            .dtype = OPENREG_DTYPE_INT32,
                            .input_count = 1,
                            .output_count = 1,
                            .timeout_ns = AGES_NS};
  for (int i = 0; i < OPENREG_MAX_RANKS; i++) {
    in[i] = (openreg_comm_buffer){(char *)base + (size_t)i * SPACE,
                                  SPACE / 8}; /* too large to be copied into the segment */
    out[i] = (openreg_comm_buffer){(char *)in[i].address + SPACE / 2, SPACE / 8};
    for (int j = 0; j < SPACE / 8; j++)
      ((int32_t *)see(in[i].address))[j] = i + j;
    sum.inputs = &in[i];
    sum.outputs = &out[i];
    REQUIRE_OK(openreg_comm_begin(comms[i], &sum));
  }
  for (int undone = OPENREG_MAX_RANKS; undone > 0;) {
    undone = 0;
    for (int i = 0; i < OPENREG_MAX_RANKS; i++) {
      openreg_status status = comms[i] == NULL ? OPENREG_OK : openreg_comm_finish(comms[i], 0);
      REQUIRE(status == OPENREG_OK || status == OPENREG_NOT_READY);
      undone += status == OPENREG_NOT_READY;
      if (status == OPENREG_OK) {
        openreg_comm_destroy(comms[i]);
        comms[i] = NULL;
      }
    }
  }
  for (int i = 0; i < OPENREG_MAX_RANKS; i++)
    for (int j = 0; j < SPACE / 8; j++)
      REQUIRE(((int32_t *)see(out[i].address))[j] == 256 * 255 / 2 + 256 * j);
}

/* ---- leaks ----------------------------------------------------------------------------------- */

static int count_lines(const char *path, const char *text) {
  char line[512];
  int count = 0;
  FILE *file = fopen(path, "r");
  REQUIRE(file != NULL);
  while (fgets(line, sizeof line, file) != NULL)
    count += strstr(line, text) != NULL;
  fclose(file);
  return count;
}

/* Joins and leaves repeatedly. The watchdog closes its descriptors when it ends, a little later. */
static void join_often(int rank) {
  openreg_comm *comm;
  REQUIRE_OK(openreg_initialize());
  int descriptors = count_descriptors();
  int mappings = count_lines("/proc/self/maps", "openreg");
  for (int round = 0; round < 6; round++) {
    id = shared_id[round];
    REQUIRE_OK(join(2, rank, rank, AGES_NS, &comm));
    require_barrier(comm);
    REQUIRE(count_descriptors() > descriptors);
    REQUIRE(count_lines("/proc/self/maps", "openreg") > mappings);
    openreg_comm_destroy(comm);
    REQUIRE(count_lines("/proc/self/maps", "openreg") == mappings);
  }
  while (count_descriptors() > descriptors)
    sched_yield();
}

static void join_and_leave(void) {
  shared_id = share_memory(6 * sizeof *shared_id);
  int descriptors = count_descriptors();
  for (int round = 0; round < 6; round++)
    REQUIRE_OK(openreg_comm_id_create(2, &shared_id[round]));
  run_all(2, join_often);
  /* A segment that all ranks have joined is closed when the next one is created. */
  REQUIRE_OK(openreg_comm_id_create(2, &id));
  REQUIRE(!openreg_comm_id_is_reachable(&shared_id[0]));
  openreg_comm_id_drop(&id);
  REQUIRE(count_descriptors() == descriptors);
}

static void communicators_leak_nothing(void **state) {
  (void)state;
  child_expect_pass(join_and_leave, SMALL_DEVICES);
}

/* ---- forks ----------------------------------------------------------------------------------- */

static openreg_comm *inherited;

static void use_in_child(void) {
  openreg_collective barrier = {.kind = OPENREG_COLLECTIVE_BARRIER, .timeout_ns = AGES_NS};
  openreg_message message = {.is_send = true, .peer = 0, .dtype = OPENREG_DTYPE_BYTES};
  REQUIRE(openreg_comm_check(inherited) == OPENREG_BAD_FORK);
  REQUIRE(openreg_comm_run(inherited, &barrier) == OPENREG_BAD_FORK);
  REQUIRE(openreg_comm_begin(inherited, &barrier) == OPENREG_BAD_FORK);
  REQUIRE(openreg_comm_finish(inherited, 0) == OPENREG_BAD_FORK);
  REQUIRE(openreg_comm_exchange(inherited, &message, 1, AGES_NS) == OPENREG_BAD_FORK);
  openreg_comm_abort(inherited, NULL);
  openreg_comm_destroy(inherited);
}

static void count_cores(rank *self) {
  cpu_set_t cores;
  REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
  bool has_cores = CPU_COUNT(&cores) >= self->size && CPU_COUNT(&cores) > 1;
  REQUIRE(openreg_comm_has_core_per_rank(self->comm) == has_cores);
}

static void count_cores_of_two_and_of_many(void) {
  run_as_processes(2, 1, count_cores, NULL);
  run_as_processes(MOST_RANKS, 1, count_cores, NULL);
}

static void ranks_know_whether_each_has_a_core(void **state) {
  (void)state;
  child_expect_pass(count_cores_of_two_and_of_many, MANY_DEVICES);
}

static void fork_with_communicator(int rank) {
  REQUIRE_OK(join(2, rank, rank, AGES_NS, &inherited));
  child_fork_and_require(use_in_child);
  require_barrier(inherited); /* the child has ended and released no rank */
  openreg_comm_destroy(inherited);
}

static void fork_both(void) {
  REQUIRE_OK(openreg_comm_id_create(2, &id));
  run_all(2, fork_with_communicator);
}

static void a_forked_child_has_no_communicators(void **state) {
  (void)state;
  child_expect_pass(fork_both, SMALL_DEVICES);
}

static void a_rank_that_dies_while_others_join_is_named(void **state) {
  (void)state;
  child_expect_pass(kill_while_joining, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_that_cannot_be_joined_are_rejected),
      cmocka_unit_test(an_id_is_unreachable_when_its_creator_has_ended),
      cmocka_unit_test(ranks_that_do_not_join_are_named),
      cmocka_unit_test(a_rank_that_dies_while_others_join_is_named),
      cmocka_unit_test(two_ranks_with_one_device_are_an_error_unless_allowed),
      cmocka_unit_test(a_rank_joins_once),
      cmocka_unit_test(one_thread_joins_with_all_its_devices),
      cmocka_unit_test(the_largest_group_computes),
      cmocka_unit_test(ranks_know_whether_each_has_a_core),
      cmocka_unit_test(communicators_leak_nothing),
      cmocka_unit_test(a_forked_child_has_no_communicators),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
