/* Ranks that are killed or stopped at each point of a call. The others learn it from the watchdog,
 * and calls that have all they need succeed. After a call has failed, nobody writes to its rank's
 * memory.
 */
#include "collectives/comm.h"
#include "collectives/reduction.h"
#include "ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VICTIM = 1, SMALL = 100, LARGE = 1 << 20, SHORT_NS = 50000000 };

/* ---- where a rank dies ----------------------------------------------------------------------- */

enum place {
  NOWHERE,
  BEFORE_ARRIVAL,
  AFTER_ARRIVAL,
  BEFORE_MATCHING,
  WHILE_MOVING, /* has begun, but moved nothing */
  WHILE_REDUCING,
  WHILE_COPYING,
  BEFORE_SECOND_ARRIVAL,
  AFTER_SECOND_ARRIVAL,
  WHILE_MAPPING,         /* while it joins */
  ABORTED_BEFORE_MOVING, /* nobody dies */
};

static enum place place; /* of this process */
static int signal_number = SIGKILL;

/* Dies when all have arrived, because it is certain then which calls of the others succeed. */
static void die_after_arrival(openreg_comm *comm, enum place here) {
  while (place == here && atomic_load(&comm->shm->arrivals) < comm->round * (uint64_t)comm->size)
    sched_yield();
  if (place == here)
    REQUIRE(raise(signal_number) == 0);
}

static void die_at(enum place here) {
  if (place == here)
    REQUIRE(raise(signal_number) == 0);
}

void __real_openreg_barrier_arrive(openreg_comm *comm);
void __wrap_openreg_barrier_arrive(openreg_comm *comm);
void __wrap_openreg_barrier_arrive(openreg_comm *comm) {
  bool is_second = comm->call.has_moved;
  die_at(is_second ? BEFORE_SECOND_ARRIVAL : BEFORE_ARRIVAL);
  __real_openreg_barrier_arrive(comm);
  die_after_arrival(comm, is_second ? AFTER_SECOND_ARRIVAL : AFTER_ARRIVAL);
}

bool __real_openreg_calls_match(openreg_comm *comm);
bool __wrap_openreg_calls_match(openreg_comm *comm);
bool __wrap_openreg_calls_match(openreg_comm *comm) {
  die_at(BEFORE_MATCHING);
  return __real_openreg_calls_match(comm);
}

bool __real_openreg_transfer_begin(openreg_comm *comm);
bool __wrap_openreg_transfer_begin(openreg_comm *comm);
bool __wrap_openreg_transfer_begin(openreg_comm *comm) {
  if (place == ABORTED_BEFORE_MOVING)
    openreg_comm_abort(comm, "too late");
  bool may_move = __real_openreg_transfer_begin(comm);
  REQUIRE(place != ABORTED_BEFORE_MOVING || !may_move);
  die_at(WHILE_MOVING);
  return may_move;
}

static _Atomic int *gate; /* not NULL: for the test of writes after an abort */

bool __real_openreg_reduce(const openreg_reduction_job *job, bool (*is_canceled)(const void *),
                           const void *context);
bool __wrap_openreg_reduce(const openreg_reduction_job *job, bool (*is_canceled)(const void *),
                           const void *context);
bool __wrap_openreg_reduce(const openreg_reduction_job *job, bool (*is_canceled)(const void *),
                           const void *context) {
  openreg_reduction_job half = *job;
  half.count /= 2;
  if (place == WHILE_REDUCING)
    REQUIRE(__real_openreg_reduce(&half, is_canceled, context));
  die_at(WHILE_REDUCING);
  const openreg_comm *comm = context;
  if (gate != NULL && comm->rank == 0) {
    while (!is_canceled(context))
      sched_yield();
    for (int i = 0; i < 1000; i++) { /* a rank that does not wait for this one is done by now */
      REQUIRE(atomic_load(gate) == 0);
      sched_yield();
    }
    REQUIRE(!__real_openreg_reduce(job, is_canceled, context));
    return false;
  }
  return __real_openreg_reduce(job, is_canceled, context);
}

bool __real_openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                               size_t bytes);
bool __wrap_openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                               size_t bytes);
bool __wrap_openreg_copy_tiles(const openreg_comm *comm, void *destination, const void *source,
                               size_t bytes) {
  if (place == WHILE_COPYING)
    REQUIRE(__real_openreg_copy_tiles(comm, destination, source, bytes / 2));
  die_at(WHILE_COPYING);
  return __real_openreg_copy_tiles(comm, destination, source, bytes);
}

openreg_status __real_openreg_ipc_open_arena(const openreg_ipc_handle *handle,
                                             openreg_peer_arena *arena);
openreg_status __wrap_openreg_ipc_open_arena(const openreg_ipc_handle *handle,
                                             openreg_peer_arena *arena);
openreg_status __wrap_openreg_ipc_open_arena(const openreg_ipc_handle *handle,
                                             openreg_peer_arena *arena) {
  die_at(WHILE_MAPPING);
  return __real_openreg_ipc_open_arena(handle, arena);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static openreg_status run(rank *self, openreg_collective_kind kind, size_t count,
                          uint64_t timeout_ns) {
  size_t all = count * (size_t)self->size;
  openreg_comm_buffer one = {self->memory, count}, out = {self->memory + MEMORY_BYTES / 2, all};
  if (kind == OPENREG_COLLECTIVE_ALL_REDUCE)
    out.count = count;
  openreg_collective what = byte_call(kind, &one, &out);
  what.timeout_ns = timeout_ns;
  return openreg_comm_run(self->comm, &what);
}

static openreg_status pass(rank *self, bool is_send, int peer, size_t count, uint64_t timeout_ns) {
  openreg_message message = {is_send, peer, OPENREG_DTYPE_UINT8, {self->memory, count}, false};
  return openreg_comm_exchange(self->comm, &message, 1, timeout_ns);
}

/* ---- killed ---------------------------------------------------------------------------------- */

/* Where in which call a rank dies, and whether the others' call succeeds. */
struct death {
  enum place place;
  openreg_collective_kind kind;
  size_t count;
  bool others_succeed;
};

static const struct death deaths[] = {
    {BEFORE_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, SMALL, false},
    {AFTER_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, SMALL, true},
    {BEFORE_MATCHING, OPENREG_COLLECTIVE_ALL_GATHER, SMALL, true},
    {BEFORE_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {AFTER_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {BEFORE_MATCHING, OPENREG_COLLECTIVE_ALL_GATHER, LARGE, false},
    {WHILE_MOVING, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {WHILE_REDUCING, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, false},
    {WHILE_COPYING, OPENREG_COLLECTIVE_ALL_GATHER, LARGE, false},
    {BEFORE_SECOND_ARRIVAL, OPENREG_COLLECTIVE_ALL_GATHER, LARGE, false},
    {AFTER_SECOND_ARRIVAL, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, true},
};

static void see_death(rank *self) {
  const struct death *death = self->context;
  REQUIRE_OK(run(self, death->kind, death->count, AGES_NS));
  if (self->rank == VICTIM)
    place = death->place;
  openreg_status status = run(self, death->kind, death->count, AGES_NS);
  REQUIRE(self->rank != VICTIM);
  if (death->others_succeed)
    REQUIRE_OK(status);
  else
    require_failure(status, "openreg: rank 1 of group 'test' has died (process ");
  require_failure(run(self, death->kind, death->count, AGES_NS), "rank 1 of group 'test' has died");
}

static void run_with_victim(int size, void (*body)(rank *), const void *context) {
  pid_t pids[MOST_RANKS];
  start_ranks(size, body, context, pids);
  expect_killed(pids[VICTIM]);
  for (int rank = 0; rank < size; rank++)
    if (rank != VICTIM)
      expect_exit(pids[rank]);
}

static void die_everywhere(void) {
  for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++)
    run_with_victim(4, see_death, &deaths[i]);
}

static void a_rank_killed_anywhere_in_a_call_aborts_the_group(void **state) {
  (void)state;
  child_expect_pass(die_everywhere, MANY_DEVICES);
}

/* Without pidfds the watchdog polls for dead processes. */
int __real_openreg_process_open_pidfd(int pid);
int __wrap_openreg_process_open_pidfd(int pid);
static bool has_no_pidfds;
int __wrap_openreg_process_open_pidfd(int pid) {
  return has_no_pidfds ? -1 : __real_openreg_process_open_pidfd(pid);
}

static void die_without_pidfds(void) {
  has_no_pidfds = true;
  run_with_victim(3, see_death, &deaths[0]);
}

static void a_death_is_detected_without_pidfds(void **state) {
  (void)state;
  child_expect_pass(die_without_pidfds, MANY_DEVICES);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void die_receiving(rank *self) {
  if (self->rank == VICTIM) {
    place = WHILE_COPYING;
    (void)pass(self, false, 0, LARGE, AGES_NS);
    REQUIRE(!"reached");
  }
  require_failure(pass(self, true, VICTIM, LARGE, AGES_NS), "rank 1 of group 'test' has died");
}

/* A message that was sent before the death can be received, unless the death is detected first: the
 * receiver has not started to look when the sender dies. */
static void die_sending(rank *self) {
  if (self->rank == VICTIM) {
    REQUIRE_OK(pass(self, true, 0, SMALL, AGES_NS));
    raise(SIGKILL);
  }
  openreg_status status = pass(self, false, VICTIM, SMALL, AGES_NS);
  if (status != OPENREG_OK)
    require_failure(status, "rank 1 of group 'test' has died");
  require_failure(pass(self, false, VICTIM, SMALL, AGES_NS), "rank 1 of group 'test' has died");
}

static void die_with_messages(void) {
  run_with_victim(2, die_receiving, NULL);
  run_with_victim(2, die_sending, NULL);
}

static void a_killed_peer_fails_messages(void **state) {
  (void)state;
  child_expect_pass(die_with_messages, MANY_DEVICES);
}

/* ---- joining --------------------------------------------------------------------------------- */

static openreg_comm_id id;

static void join_and_see_death(int number) {
  openreg_comm *comm;
  openreg_comm_options options = {.timeout_ns = AGES_NS};
  if (number == VICTIM)
    place = WHILE_MAPPING;
  openreg_status status = openreg_comm_init(&id, 3, number, number, &options, &comm);
  if (status == OPENREG_COMMUNICATION_FAILURE)
    require_failure(status, "openreg: rank ");
  else /* the memory of the dead process cannot be reached any more */
    REQUIRE(status == OPENREG_INVALID_ARGUMENT || status == OPENREG_SYSTEM);
  exit(0);
}

static void die_joining(void) {
  pid_t pids[3];
  REQUIRE_OK(openreg_comm_id_create(3, &id));
  for (int i = 0; i < 3; i++) {
    pids[i] = fork();
    REQUIRE(pids[i] >= 0);
    if (pids[i] == 0)
      join_and_see_death(i);
  }
  expect_killed(pids[VICTIM]);
  expect_exit(pids[0]);
  expect_exit(pids[2]);
}

static void a_rank_killed_while_it_maps_fails_joining(void **state) {
  (void)state;
  child_expect_pass(die_joining, MANY_DEVICES);
}

/* ---- writes after an abort ------------------------------------------------------------------- */

/* The arguments must stay valid, so they are static. */
static openreg_status begin_large(rank *self) {
  static openreg_comm_buffer in, out; /* one rank of a test does this */
  in = (openreg_comm_buffer){self->memory, LARGE};
  out = (openreg_comm_buffer){self->memory + MEMORY_BYTES / 2, LARGE};
  openreg_collective what = byte_call(OPENREG_COLLECTIVE_ALL_REDUCE, &in, &out);
  return openreg_comm_begin(self->comm, &what);
}

/* Rank 0 moves data until the group is aborted, and then a little longer. */
static void fail_while_others_move(rank *self) {
  if (self->rank == 2) {
    REQUIRE_OK(begin_large(self));
    REQUIRE(openreg_comm_finish(self->comm, SHORT_NS) == OPENREG_NOT_READY);
    openreg_comm_abort(self->comm, "enough");
    require_failure(openreg_comm_finish(self->comm, UINT64_MAX), "enough");
    atomic_store(gate, 1);
    return;
  }
  require_failure(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, AGES_NS), "enough");
}

static void fail_and_wait(void) {
  gate = share_memory(sizeof *gate);
  run_as_processes(3, 1, fail_while_others_move, NULL);
  atomic_store(gate, 0);
  run_as_threads(3, fail_while_others_move, NULL);
}

static void a_failed_call_waits_for_active_transfers(void **state) {
  (void)state;
  child_expect_pass(fail_and_wait, MANY_DEVICES);
}

/* A rank that wants to move data after an abort does not begin. */
static void move_too_late(rank *self) {
  if (self->rank == 0)
    place = ABORTED_BEFORE_MOVING;
  require_failure(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, AGES_NS), "too late");
  REQUIRE(atomic_load(&self->comm->shm->members[self->rank].active_transfers) == 0);
}

static void move_too_late_everywhere(void) {
  run_as_processes(3, 1, move_too_late, NULL);
}

static void no_transfer_begins_after_an_abort(void **state) {
  (void)state;
  child_expect_pass(move_too_late_everywhere, MANY_DEVICES);
}

/* ---- stopped --------------------------------------------------------------------------------- */

/* A rank that is stopped during a transfer is late, and the others do not wait for it long. Rank 2
 * gives up after rank 0 has moved its share, and after it has seen the victim's transfer begin. */
static void see_stopped(rank *self) {
  static const char expected[] = "openreg: rank 1 of 3 did not finish all_reduce #2 (sum, uint8, "
                                 "1048576 elements) of group 'test' within 300 s";
  openreg_comm *comm = self->comm;
  const struct openreg_member *members = comm->shm->members;
  REQUIRE_OK(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, AGES_NS));
  if (self->rank == VICTIM) {
    place = WHILE_MOVING;
    signal_number = SIGSTOP;
  }
  if (self->rank != 2) {
    require_failure(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, LARGE, AGES_NS), expected);
    return;
  }
  REQUIRE_OK(begin_large(self));
  while (openreg_comm_finish(comm, 0) == OPENREG_NOT_READY)
    if (atomic_load(&members[0].arrived_round) == 4 &&
        atomic_load(&members[VICTIM].active_transfers) == 1)
      comm->call.deadline_ns = 0;
  require_failure(openreg_comm_check(comm), expected);
}

static void stop_one(void) {
  pid_t pids[3];
  start_ranks(3, see_stopped, NULL, pids);
  expect_exit(pids[0]);
  expect_exit(pids[2]);
  REQUIRE(kill(pids[VICTIM], SIGCONT) == 0);
  expect_exit(pids[VICTIM]);
}

static void a_stopped_rank_is_late_and_fails_too(void **state) {
  (void)state;
  child_expect_pass(stop_one, MANY_DEVICES);
}

/* A rank that aborts a group may be killed before it has written the message. */
static void abort_without_message(rank *self) {
  atomic_store(&self->comm->shm->abort_state, OPENREG_ABORTING);
  require_failure(run(self, OPENREG_COLLECTIVE_ALL_REDUCE, SMALL, AGES_NS),
                  "died before it wrote the reason");
}

static void abort_in_the_middle(void) {
  run_as_processes(2, 1, abort_without_message, NULL);
}

static void an_abort_without_a_message_is_an_abort(void **state) {
  (void)state;
  child_expect_pass(abort_in_the_middle, MANY_DEVICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_killed_anywhere_in_a_call_aborts_the_group),
      cmocka_unit_test(a_death_is_detected_without_pidfds),
      cmocka_unit_test(a_killed_peer_fails_messages),
      cmocka_unit_test(a_rank_killed_while_it_maps_fails_joining),
      cmocka_unit_test(a_failed_call_waits_for_active_transfers),
      cmocka_unit_test(no_transfer_begins_after_an_abort),
      cmocka_unit_test(a_stopped_rank_is_late_and_fails_too),
      cmocka_unit_test(an_abort_without_a_message_is_an_abort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
